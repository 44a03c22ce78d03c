"""The device panel as a piece of HTML: a recording, or the live panel of a kernel, or both."""

from __future__ import annotations

from typing import Any

from labkit.views.embed import document, embedded
from labkit.views.panel_data import packed

__all__ = ["MODULES", "document", "page"]

# Each before those that use it: joined in this order they are one program.
MODULES = ("page", "panel_data", "panel_draw", "panel")


def page(
    recording: Any | None,
    *,
    key: str,
    live: bool,
    alt: str,
    png: bytes | None = None,
    stamp: str,
    ended: str | None = None,
) -> str:
    """A piece of HTML that shows a recording, or the live panel `key`, or both.

    `stamp` says where the numbers are from, `alt` in words what is there to see, `ended` why a live
    recording has ended.
    """
    options = {"key": key, "live": live, "stamp": stamp, "alt": alt, "ended": ended}
    options["data"] = None if recording is None else packed(recording)
    return embedded("panel", MODULES, options, key=key, alt=alt, png=png)
