"""A linear layer on two ranks: its matrix divided by columns, and by rows."""

from __future__ import annotations

from collections.abc import Callable

from labkit.views.figure import FRAME, look, tint
from labkit.views.sketch import Box, Sketch

ALT = (
    "A linear layer y = x w on two ranks. By columns: x is whole on both, rank 0 has the left "
    "half of w and computes the left half of y, rank 1 the right half. Every element of y is "
    "finished, and nothing is added. By rows: rank 0 has the upper half of w and the left columns "
    "of x, rank 1 the lower half and the right columns. Each computes an array of the size of y, "
    "which is a part of a sum. An all-reduce adds the parts up to y, and then both ranks have it."
)
CELL = 16
X, W, Y = (4, 6), (6, 8), (4, 8)  # rows and columns, as in lecture 42
WHOLE, SUM = -1, 2  # not divided; the series of the finished sum


def draw() -> Sketch:
    board = Sketch(
        "A linear layer on two ranks: divide w by columns, or by rows",
        400,
        "Blue belongs to rank 0, orange to rank 1. White is whole on both ranks.",
    )
    top = 132.0
    board.text(24, 92, "by columns", bold=True)
    _matrix(board, 24, top, X, "x", lambda row, column: WHOLE)
    _matrix(board, 150, top - 16, W, "w", lambda row, column: column // 4)
    _matrix(board, 310, top, Y, "y", lambda row, column: column // 4)
    _sign(board, 135, top, "·")
    _sign(board, 294, top, "=")
    words = "Each rank has finished columns of y.\nNothing is added up."
    board.text(468, top + 32, words, size=9.5)

    top = 292.0
    board.text(24, 252, "by rows", bold=True)
    _matrix(board, 24, top, X, "x", lambda row, column: column // 3)
    _matrix(board, 150, top - 16, W, "w", lambda row, column: row // 3)
    _sign(board, 135, top, "·")
    for x, sign, name, series in (
        (310, "=", "of rank 0", 0), (468, "+", "of rank 1", 1), (626, "=", "y, on both ranks", SUM),
    ):  # fmt: skip
        _matrix(board, x, top, Y, name, lambda row, column, series=series: series)
        _sign(board, x - 15, top, sign)
    board.text(468, 252, "Each rank has a part of a sum.", size=9.5, align="center")
    board.text(690, 252, "all-reduce", size=9.5, bold=True, align="center")
    return board


def _matrix(
    board: Sketch, x: float, y: float, size: tuple[int, int], name: str,
    of: Callable[[int, int], int],
) -> None:  # fmt: skip
    """Cells in the colour of the rank that has them, and the name below."""
    rows, columns = size
    for row in range(rows):
        for column in range(columns):
            owner = of(row, column)
            cell = Box(x + CELL * column, y + CELL * row, CELL - 2, CELL - 2)
            color = "white" if owner == WHOLE else tint(look(owner).color, 0.5)
            board.rectangle(cell, color, FRAME if owner == WHOLE else look(owner).color)
    board.text(x + CELL * columns / 2, y + CELL * rows + 12, name, size=9.5, align="center")


def _sign(board: Sketch, x: float, top: float, sign: str) -> None:
    board.text(x, top + 31, sign, size=14, align="center")
