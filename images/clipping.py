"""Two gradients of two replicas: summed and then clipped, and clipped and then summed."""

from __future__ import annotations

from math import cos, hypot, pi, sin

from labkit.views.figure import FAINT, FRAME, OKABE_ITO
from labkit.views.sketch import Sketch

ALT = (
    "Two gradients, (6, 0) of replica 0 and (-6, 2) of replica 1, and a limit of 2 for the norm. "
    "Summed first: the two are nearly opposite, and their sum is (0, 2), which the limit leaves as "
    "it is. Clipped first: each is shortened to a length of 2, and their sum is (0.1, 0.63), "
    "shorter and in another direction."
)
LIMIT, UNIT = 2.0, 22.0
GRADIENTS = ((6.0, 0.0), (-6.0, 2.0))
COLORS = OKABE_ITO["blue"], OKABE_ITO["orange"], OKABE_ITO["green"]


def clipped(vector: tuple[float, float]) -> tuple[float, float]:
    scale = min(1.0, LIMIT / hypot(*vector))
    return vector[0] * scale, vector[1] * scale


def added(vectors: tuple[tuple[float, float], ...]) -> tuple[float, float]:
    return sum(x for x, _ in vectors), sum(y for _, y in vectors)


def draw() -> Sketch:
    board = Sketch(
        "Clip the sum, not the parts",
        292,
        "The circle is the limit of the norm, 2. Green is the gradient that updates the weights.",
    )
    first = clipped(added(GRADIENTS))
    parts = (clipped(GRADIENTS[0]), clipped(GRADIENTS[1]))
    _panel(board, 240, "sum, then clip", GRADIENTS, first)
    _panel(board, 620, "clip, then sum", parts, added(parts))
    return board


def _panel(
    board: Sketch, x: float, title: str, vectors: tuple[tuple[float, float], ...],
    result: tuple[float, float],
) -> None:  # fmt: skip
    y = 190.0

    def at(vector: tuple[float, float]) -> tuple[float, float]:
        return x + UNIT * vector[0], y - UNIT * vector[1]

    board.text(x, 92, title, bold=True, align="center")
    board.line(at((-6.5, 0)), at((6.5, 0)), color=FRAME)
    board.line(at((0, -2.2)), at((0, 2.6)), color=FRAME)
    circle = [(LIMIT * cos(pi * i / 60), LIMIT * sin(pi * i / 60)) for i in range(121)]
    board.line(*map(at, circle), dashed=True, color=FAINT)
    for number, (vector, color) in enumerate(zip(vectors, COLORS, strict=False)):
        board.arrow((x, y), at(vector), heavy=True, color=color)
        (right, up), side = at(vector), "left" if vector[0] > 0 else "right"
        beyond = (right + 6, up + 15) if vector[0] > 0 else (right - 8, up)
        board.text(*beyond, f"replica {number}", size=9, align=side)
    board.arrow((x, y), at(result), heavy=True, color=COLORS[2])
    board.text(x, 264, f"({result[0]:.2g}, {result[1]:.2g})", size=9.5, bold=True, align="center")
