"""The device panel as a piece of HTML: a recording, or the live panel of a kernel, or both."""

from __future__ import annotations

from typing import Any

from labkit.views import embed
from labkit.views.embed import STATIC, document
from labkit.views.panel_data import packed

__all__ = ["MODULES", "STATIC", "bundle", "document", "page", "style"]

# Each before those that use it: joined in this order they are one program.
MODULES = (
    "page_elements",
    "page_canvas",
    "page_theme",
    "panel_pace",
    "panel_hub",
    "panel_text",
    "panel_time",
    "panel_unpack",
    "panel_table",
    "panel_store",
    "panel_trace",
    "panel_lanes",
    "panel_spans",
    "panel_raster",
    "panel_draw",
    "panel_words",
    "panel_sight",
    "panel_hands",
    "panel_parts",
    "panel",
)


def page(
    recording: Any | None,
    *,
    key: str,
    live: bool,
    alt: str,
    png: bytes | None = None,
    stamp: str,
) -> str:
    """A piece of HTML that shows a recording, or the live panel `key`, or both.

    `stamp` says where the numbers are from; `alt` says in words what is there to see.
    """
    options = {
        "key": key,
        "live": live,
        "stamp": stamp,
        "alt": alt,
        "data": None if recording is None else packed(recording),
    }
    return embed.embedded("panel", MODULES, options, key=key, alt=alt, png=png)


def bundle(modules: tuple[str, ...] = MODULES) -> str:
    """The modules of the panel, or some of them, as one script."""
    return embed.bundle(modules)


def style() -> str:
    """The panel's style sheet."""
    return embed.style("panel")
