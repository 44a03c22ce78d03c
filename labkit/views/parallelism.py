"""Diagrams of the three ways to share the work: split the data, the layers, or inside a layer."""

from __future__ import annotations

from itertools import pairwise

from labkit.views.figure import look, tint
from labkit.views.sketch import Box, Diagram, Sketch

__all__ = ["diagrams"]

# One colour per device and one for what passes between them, in every diagram of the course.
FIRST, SECOND, SHARED = 0, 1, 2


def data_parallelism() -> Sketch:
    board = Sketch(
        "Data parallelism",
        386,
        "Every device holds the whole model and sees other examples. All make the same update.",
    )
    board.text(84, 128, "global batch", bold=True, align="center")
    parts = (
        board.box(24, 146, 120, 70, "first half", series=FIRST, hatch=True),
        board.box(24, 220, 120, 70, "second half", series=SECOND, hatch=True),
    )
    average = board.box(672, 162, 104, 112, "average\nof both\ngradients", series=SHARED, bold=True)
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
        enter = average.at(0, 0.25 + 0.5 * number)
        board.arrow(gradient.right, (644, level), (644, enter[1]), enter, both=True)
    return board


def model_parallelism() -> Sketch:
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


def tensor_parallelism() -> Sketch:
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
    from matplotlib.patches import Rectangle

    cell, one = 14.0, look(series)
    for row in range(rows):
        for column in range(columns):
            board.axes.add_patch(
                Rectangle(
                    (x + cell * column, y + cell * row),
                    cell,
                    cell,
                    zorder=5,
                    linewidth=0.9,
                    facecolor=tint(one.color, 0.22),
                    edgecolor=one.color,
                    hatch=one.hatch,
                )
            )
    return Box(x, y, cell * columns, cell * rows)


def diagrams() -> dict[str, Diagram]:
    """The pictures of this file for the folder of images."""
    return {
        "data_parallelism": Diagram(
            "01",
            data_parallelism,
            "Data parallelism. A global batch is cut in two halves. Device 0 and device 1 each "
            "hold all three layers, take one half, and compute a gradient. Both gradients go to "
            "one box, the average of the gradients, and the average goes back to both devices.",
        ),
        "model_parallelism": Diagram(
            "01",
            model_parallelism,
            "Model parallelism. Layers 1 and 2 are on device 0, layers 3 and 4 on device 1. The "
            "whole batch passes layer 1 to 4; activations cross from device 0 to device 1 on "
            "the way forward and gradients cross back on the way backward.",
        ),
        "tensor_parallelism": Diagram(
            "01",
            tensor_parallelism,
            "Tensor parallelism. A Dense layer of 10 units is cut: device 0 holds the weights "
            "of units 1 to 5, device 1 those of units 6 to 10. Both get the same batch x, each "
            "computes its part of the output, and the two parts side by side are the whole "
            "output y.",
        ),
    }
