"""Reduce, before and after."""

from __future__ import annotations

from _operation import everywhere, operation, root

from labkit.views.sketch import Sketch

ALT = (
    "Reduce on 4 ranks. Before: rank 0 holds 1 to 4, rank 1 holds 5 to 8, rank 2 holds 9 to 12, "
    "rank 3 holds 13 to 16. After: rank 0 holds the sums 28, 32, 36, 40, with contributions of "
    "all four ranks."
)


def draw() -> Sketch:
    return operation(
        "reduce",
        "Rank 0 ends with the sum. What the other ranks hold then is not defined.",
        everywhere,
        root,
    )
