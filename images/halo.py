"""A halo exchange between three ranks."""

from __future__ import annotations

from itertools import pairwise

from labkit.views.figure import look, tint
from labkit.views.sketch import Box, Sketch

ALT = (
    "Spatial parallelism. An image of 12 rows is divided among three ranks, four rows each. For a "
    "convolution with a 3 by 3 kernel every rank needs one row more above and below its own, the "
    "halo. Rank 0 sends its last row, row 3, to rank 1 and receives row 4; rank 1 sends row 7 to "
    "rank 2 and receives row 8. Above row 0 and below row 11 the halo is zero."
)

RANKS, ROWS, CELLS = 3, 4, 8
COLORS = (0, 1, 3)
CELL, ROW = 15.0, 24.0


def draw() -> Sketch:
    board = Sketch(
        "Spatial parallelism: a halo exchange",
        368,
        "Each rank has four rows of the image, and a copy of the rows that its kernel also needs.",
    )
    board.text(84, 96, "one image", size=9.5, bold=True, align="center")
    for row in range(RANKS * ROWS):
        _row(board, 24, 112 + 16 * row, row // ROWS, height=16)
    strips = []
    for rank in range(RANKS):
        x = 236 + 190.0 * rank
        board.text(x + 60, 96, f"rank {rank}", size=9.5, bold=True, align="center")
        strips.append([_padded(board, x, 112 + 33.0 * n, rank, n) for n in range(ROWS + 2)])
    for above, below in pairwise(strips):
        (right, last), (_, halo) = above[ROWS].right, above[ROWS + 1].right
        board.arrow((right + 7, last), (below[0].x - 46, below[0].left[1]))
        board.arrow((below[1].x - 46, below[1].left[1]), (right + 10, halo))
    board.text(
        24, 346, "Backward the arrows turn round: the gradient of a halo row goes to the rank that "
        "owns the row,\nwhich adds it to its own.", size=9, faint=True,
    )  # fmt: skip
    return board


def _padded(board: Sketch, x: float, y: float, rank: int, number: int) -> Box:
    """One row of a rank's array; the first and the last are its halo."""
    row = rank * ROWS + number - 1
    inside = 0 <= row < RANKS * ROWS
    owner = row // ROWS if inside else None
    place = _row(board, x, y, owner)
    board.text(x - 8, y + ROW / 2, f"row {row}" if inside else "zeros", size=8.5, align="right")
    if number in (0, ROWS + 1):
        board.rectangle(place.grown(2.5), edge="#333333", line=1.6, dashed=True, level=6)
    return place


def _row(board: Sketch, x: float, y: float, owner: int | None, height: float = ROW) -> Box:
    color = "#999999" if owner is None else look(COLORS[owner]).color
    fill = "white" if owner is None else tint(color, 0.3)
    for cell in range(CELLS):
        place = Box(x + CELL * cell, y, CELL, height)
        board.rectangle(place, fill, color, level=4)
    return Box(x, y, CELL * CELLS, height)
