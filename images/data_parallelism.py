"""Data parallelism."""

from __future__ import annotations

from itertools import pairwise

from labkit.views.sketch import Sketch

ALT = (
    "Data parallelism. A global batch is cut in two halves. Device 0 and device 1 each hold "
    "all three layers, take one half, and compute a gradient of their losses, divided by the "
    "global batch. Both gradients go to one box, their sum, and it goes back to both devices."
)

# One colour per device and one for what passes between them, in every diagram of the course.
FIRST, SECOND, SHARED = 0, 1, 2


def draw() -> Sketch:
    board = Sketch(
        "Data parallelism",
        386,
        "Losses are divided by the global batch, so the gradients' sum is that of the mean loss.",
    )
    board.text(84, 128, "global batch", bold=True, align="center")
    parts = (
        board.box(24, 146, 120, 70, "first half", series=FIRST, hatch=True),
        board.box(24, 220, 120, 70, "second half", series=SECOND, hatch=True),
    )
    total = board.box(672, 162, 104, 112, "sum\nof both\ngradients", series=SHARED, bold=True)
    for number, (part, y) in enumerate(zip(parts, (80, 228), strict=True)):
        board.frame(196, y, 420, 128, f"device {number}")
        level = y + 72
        layers = [
            board.box(220 + 90 * i, level - 28, 66, 56, f"layer {i + 1}", size=9) for i in range(3)
        ]
        gradient = board.box(
            490, level - 28, 102, 56, f"gradient {number}", series=number, hatch=True, size=9
        )
        board.arrow(part.right, (170, part.right[1]), (170, level), layers[0].left)
        stops = [*layers, gradient]
        for before, after in pairwise(stops):
            board.arrow(before.right, after.left)
        enter = total.at(0, 0.25 + 0.5 * number)
        board.arrow(gradient.right, (644, level), (644, enter[1]), enter, both=True)
    return board
