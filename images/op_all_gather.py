"""All-gather, before and after."""

from __future__ import annotations

from _operation import everywhere, operation, own

from labkit.views.sketch import Sketch

ALT = (
    "All-gather on 4 ranks. Before: rank 0 holds 1 as chunk 0, rank 1 holds 6 as chunk 1, rank "
    "2 holds 11 as chunk 2, rank 3 holds 16 as chunk 3. After: all four ranks hold 1, 6, 11, "
    "16."
)


def draw() -> Sketch:
    return operation("all_gather", "Every rank ends with the chunks of all ranks.", own, everywhere)
