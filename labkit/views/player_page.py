"""The player as a piece of HTML: a run of N ranks that plays in the browser, without a kernel."""

from __future__ import annotations

import hashlib
from typing import Any

from labkit.views import embed
from labkit.views.player_data import packed

__all__ = ["MODULES", "page"]

# Each before those that use it: joined in this order they are one program.
MODULES = (
    "page",
    "player_film",
    "player_clock",
    "player_words",
    "player_layout",
    "player_paint",
    "player_grid",
    "player_circle",
    "player_code",
    "player_parts",
    "player",
)


def page(trace: Any, story: Any, timed: Any, *, alt: str, png: bytes | None = None) -> str:
    """A piece of HTML that plays the run; `alt` says in words what is there to see.

    The same run gives the same HTML.
    """
    data = packed(trace, story, timed)
    key = hashlib.sha256(data.encode()).hexdigest()[:12]
    options = {"key": key, "alt": alt, "data": data}
    return embed.embedded("player", MODULES, options, key=key, alt=alt, png=png)
