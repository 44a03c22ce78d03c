"""Model parallelism."""

from __future__ import annotations

from itertools import pairwise

from labkit.views.sketch import Sketch

ALT = (
    "Model parallelism. Layers 1 and 2 are on device 0, layers 3 and 4 on device 1. The whole "
    "batch passes layer 1 to 4; activations cross from device 0 to device 1 on the way "
    "forward and gradients cross back on the way backward."
)

# One colour per device and one for what passes between them, in every diagram of the course.
FIRST, SECOND, SHARED = 0, 1, 2


def draw() -> Sketch:
    board = Sketch(
        "Model parallelism",
        290,
        "The layers are split. Every example passes all devices; while one computes, others wait.",
    )
    batch = board.box(24, 124, 104, 76, "whole\nbatch", series=SHARED, hatch=True)
    board.frame(172, 80, 256, 140, "device 0")
    board.frame(520, 80, 256, 140, "device 1")
    layers = [
        board.box(x, 124, 88, 76, f"layer {i + 1}", series=i // 2, hatch=True)
        for i, x in enumerate((196, 316, 544, 664))
    ]
    stops = [batch, *layers]
    for before, after in pairwise(stops):
        board.arrow(before.at(1, 0.3), after.at(0, 0.3))
    for before, after in pairwise(layers):
        board.arrow(after.at(0, 0.7), before.at(1, 0.7), dashed=True)
    board.text(474, 128, "activations", size=9, align="center")
    board.text(474, 196, "gradients", size=9, align="center")
    board.arrow((172, 252), (216, 252))
    board.text(226, 252, "forward", size=9.5)
    board.arrow((364, 252), (320, 252), dashed=True)
    board.text(374, 252, "backward", size=9.5)
    return board
