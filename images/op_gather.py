"""Gather, before and after."""

from __future__ import annotations

from _operation import operation, own, root

from labkit.views.sketch import Sketch

ALT = (
    "Gather on 4 ranks. Before: rank 0 holds 1 as chunk 0, rank 1 holds 6 as chunk 1, rank 2 "
    "holds 11 as chunk 2, rank 3 holds 16 as chunk 3. After: rank 0 holds 1, 6, 11, 16."
)


def draw() -> Sketch:
    return operation(
        "gather", "Rank 0 collects one chunk of every rank: scatter backwards.", own, root
    )
