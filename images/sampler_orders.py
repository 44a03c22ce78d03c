"""Which examples two ranks see in three epochs: without a sampler, with one, and with set_epoch."""

from __future__ import annotations

from random import Random

from labkit.views.sketch import Sketch

ALT = (
    "Eight examples, two ranks, three epochs. Without a sampler both ranks see all eight in the "
    "same order. With a DistributedSampler each sees four of its own, but without set_epoch the "
    "same four in the same order in each epoch. With set_epoch each epoch has new shares."
)
EXAMPLES = 8


def draw() -> Sketch:
    board = Sketch(
        "Which examples a rank sees",
        290,
        "Eight examples, two ranks, three epochs. Equal colours are equal examples in equal order.",
    )
    orders = [Random(epoch).sample(range(EXAMPLES), EXAMPLES) for epoch in range(3)]
    _panel(board, 84, "no sampler", [[one, one] for one in orders])
    _panel(board, 324, "no set_epoch", [[orders[0][::2], orders[0][1::2]]] * 3)
    _panel(board, 564, "set_epoch", [[one[::2], one[1::2]] for one in orders])
    for epoch in range(3):
        board.text(24, 163 + 46 * epoch, f"epoch {epoch}", size=9)
    return board


def _panel(board: Sketch, x: float, title: str, epochs: list[list[list[int]]]) -> None:
    board.text(x + 104, 94, title, bold=True, align="center")
    known: list[list[int]] = []
    for epoch, shares in enumerate(epochs):
        for rank, share in enumerate(shares):
            known += [share] if share not in known else []
            left = x + 106 * rank
            if epoch == 0:
                board.text(left + 50, 126, f"rank {rank}", size=9, align="center")
            words = " ".join(map(str, share))
            board.box(left, 142 + 46 * epoch, 100, 36, words, series=known.index(share), size=9)
