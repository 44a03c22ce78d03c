"""Tensor parallelism."""

from __future__ import annotations

from labkit.views.figure import look, tint
from labkit.views.sketch import Box, Sketch

ALT = (
    "Tensor parallelism. A Dense layer of 10 units is cut: device 0 holds the weights of "
    "units 1 to 5, device 1 those of units 6 to 10. Both get the same batch x, each computes "
    "its part of the output, and the two parts side by side are the whole output y."
)

# One colour per device and one for what passes between them, in every diagram of the course.
FIRST, SECOND, SHARED = 0, 1, 2


def draw() -> Sketch:
    board = Sketch(
        "Tensor parallelism",
        366,
        "One Dense layer of 10 units is cut: five units on each device, the same batch for both.",
    )
    batch = board.box(24, 166, 104, 92, "batch x", series=SHARED, hatch=True)
    board.text(700, 146, "whole output y", size=9.5, align="center", bold=True)
    for number, y in enumerate((80, 216)):
        board.frame(180, y, 384, 128, f"device {number}")
        units = "1 to 5" if number == 0 else "6 to 10"
        level = y + 72
        weights = _grid(board, 228, level - 35, 5, 5, number)
        part = _grid(board, 428, level - 28, 4, 5, number)
        board.text(308, level, f"weights of\nunits {units}", size=9)
        board.text(508, level, "part\nof y", size=9)
        leave = batch.at(1, 0.3 + 0.4 * number)
        board.arrow(leave, (154, leave[1]), (154, level), weights.left)
        board.arrow((392, level), part.left)
        whole = _grid(board, 630 + 70 * number, 184, 4, 5, number)
        board.arrow(
            (548, level),
            (596 if number == 0 else 735, level),
            *([(596, whole.left[1]), whole.left] if number == 0 else [whole.bottom]),
        )
    return board


def _grid(board: Sketch, x: float, y: float, rows: int, columns: int, series: int) -> Box:
    """A matrix as a grid of cells in the colour of its device."""
    cell, one = 14.0, look(series)
    for row in range(rows):
        for column in range(columns):
            place = Box(x + cell * column, y + cell * row, cell, cell)
            board.rectangle(place, tint(one.color, 0.22), one.color, level=5)
    return Box(x, y, cell * columns, cell * rows)
