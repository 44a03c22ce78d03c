"""Reduce-scatter, before and after."""

from __future__ import annotations

from _operation import everywhere, operation, own

from labkit.views.sketch import Sketch

ALT = (
    "Reduce-scatter on 4 ranks. Before: rank 0 holds 1 to 4, rank 1 holds 5 to 8, rank 2 holds "
    "9 to 12, rank 3 holds 13 to 16. After: rank 0 holds the sum 28 as chunk 0, rank 1 holds 32 "
    "as chunk 1, rank 2 holds 36 as chunk 2, rank 3 holds 40 as chunk 3."
)


def draw() -> Sketch:
    return operation(
        "reduce_scatter", "Every rank ends with the sum of one chunk.", everywhere, own
    )
