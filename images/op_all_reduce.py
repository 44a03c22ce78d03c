"""All-reduce, before and after."""

from __future__ import annotations

from _operation import everywhere, operation

from labkit.views.sketch import Sketch

ALT = (
    "All-reduce on 4 ranks. Before: rank 0 holds 1 to 4, rank 1 holds 5 to 8, rank 2 holds 9 to "
    "12, rank 3 holds 13 to 16. After: all four ranks hold the sums 28, 32, 36, 40, each with "
    "contributions of all four ranks."
)


def draw() -> Sketch:
    return operation("all_reduce", "Every rank ends with the sum of all.", everywhere, everywhere)
