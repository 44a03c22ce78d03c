"""Scatter, before and after."""

from __future__ import annotations

from _operation import operation, own, root

from labkit.views.sketch import Sketch

ALT = (
    "Scatter on 4 ranks. Before: rank 0 holds 1, 2, 3, 4. After: rank 0 holds 1 as chunk 0, "
    "rank 1 holds 2 as chunk 1, rank 2 holds 3 as chunk 2, rank 3 holds 4 as chunk 3."
)


def draw() -> Sketch:
    return operation("scatter", "Rank 0 distributes its chunks: rank r gets chunk r.", root, own)
