"""Broadcast, before and after."""

from __future__ import annotations

from _operation import everywhere, operation, root

from labkit.views.sketch import Sketch

ALT = (
    "Broadcast on 4 ranks. Before: rank 0 holds 1, 2, 3, 4. After: all four ranks hold 1, 2, 3, 4."
)


def draw() -> Sketch:
    return operation("broadcast", "Every rank ends with what rank 0 had.", root, everywhere)
