"""All-to-all, before and after."""

from __future__ import annotations

from _operation import everywhere, operation

from labkit.views.sketch import Sketch

ALT = (
    "All-to-all on 4 ranks. Before: rank 0 holds 1 to 4, rank 1 holds 5 to 8, rank 2 holds 9 to "
    "12, rank 3 holds 13 to 16. After: rank 0 holds 1, 5, 9, 13, rank 1 holds 2, 6, 10, 14, "
    "rank 2 holds 3, 7, 11, 15, rank 3 holds 4, 8, 12, 16."
)


def draw() -> Sketch:
    return operation(
        "all_to_all",
        "Rank r sends chunk j to rank j: the table is transposed.",
        everywhere,
        everywhere,
    )
