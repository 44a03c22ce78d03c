"""Objects beside each other under one clock: a picture, or players with one set of controls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from labkit.views.embed import Player
from labkit.views.figure import Picture


@dataclass(frozen=True)
class Together:
    """What `a.beside(b)` returns. In a cell it is the picture.

    >>> naive.beside(ring, latency=5e-6, bandwidth=50e6).player()           # doctest: +SKIP
    """

    picture: Callable[[], Picture] = field(repr=False)
    """Draws all of them on one axis of time."""
    player: Callable[[], Player] = field(repr=False)
    """Plays all of them; the time that passes is the same for each."""

    def __repr__(self) -> str:
        return repr(self.picture())

    def _repr_mimebundle_(self, **_: object) -> Any:
        return self.picture()._repr_mimebundle_()
