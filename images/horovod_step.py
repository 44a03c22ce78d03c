"""What Horovod does with the gradients of one step, on two ranks."""

from __future__ import annotations

from labkit.views.sketch import Sketch

GRADIENT, BUFFER, SHARED = 0, 1, 2  # colours
ALT = (
    "Horovod on two ranks, from left to right. On each rank the backward pass makes gradients, the "
    "last layer's first. Negotiation: rank 0 collects which gradients are ready on all ranks. On "
    "each rank these are copied into the fusion buffer. One all-reduce averages both buffers. "
    "The means are copied out, and the same update follows on both ranks."
)


def draw() -> Sketch:
    board = Sketch(
        "The gradients of one step in Horovod",
        370,
        "Both ranks do the same, and meet twice: in the negotiation and in the all-reduce.",
    )
    negotiation = board.box(
        196, 96, 124, 220, "negotiation:\nwhich are\nready on\nall ranks?", series=SHARED
    )
    reduction = board.box(
        496, 96, 124, 220, "all-reduce\nof the\nbuffers", bold=True, series=SHARED
    )
    for rank in range(2):
        top = 96 + 120 * rank
        board.text(24, top - 12, f"rank {rank}", size=9.5, bold=True)
        for row in range(3):
            layer = board.box(24, top + 4 + 32 * row, 120, 26, f"layer {3 - row}", series=GRADIENT)
            board.arrow(layer.right, (negotiation.x, layer.right[1]))
        buffer = board.box(364, top + 24, 92, 52, "fusion\nbuffer", series=BUFFER)
        means = board.box(664, top + 24, 112, 52, "mean\ngradients", series=GRADIENT)
        y = buffer.left[1]
        board.arrow((negotiation.x + negotiation.width, y), buffer.left)
        board.arrow(buffer.right, (reduction.x, y))
        board.arrow((reduction.x + reduction.width, y), means.left)
    board.text(84, 344, "gradients", size=8.5, align="center", faint=True)
    board.text(410, 344, "copied in", size=8.5, align="center", faint=True)
    board.text(720, 344, "copied out", size=8.5, align="center", faint=True)
    return board
