"""One training step on one device."""

from __future__ import annotations

from labkit.views.sketch import Sketch

FIRST, SHARED = 0, 2  # colours of device 0 and of what all devices share
ALT = (
    "One training step on one device: a batch goes through forward, loss, backward and "
    "update. Forward and backward read the weights; update writes them."
)


def draw() -> Sketch:
    board = Sketch(
        "One training step on one device",
        330,
        "A batch goes forward, the error goes backward, the weights move a little.",
    )
    board.frame(164, 80, 612, 216, "device 0")
    batch = board.box(24, 124, 100, 64, "batch", series=FIRST)
    names = ("forward", "loss", "backward", "update")
    boxes = [
        board.box(188 + 152 * i, 124, 108, 64, name, bold=True) for i, name in enumerate(names)
    ]
    stops = [batch, *boxes]
    for before, after, word in zip(
        stops, stops[1:], ("", "logits", "error", "gradient"), strict=False
    ):
        board.arrow(before.right, after.left)
        if word:
            middle = (before.right[0] + after.left[0]) / 2
            board.text(middle, 112, word, size=8.5, align="center")
    weights = board.box(188, 232, 564, 44, "weights", series=SHARED)
    for index, box in enumerate(boxes):
        if index in (0, 2):
            board.arrow((box.bottom[0], weights.y), box.bottom, "read", beside=True)
        elif index == 3:
            board.arrow(box.bottom, (box.bottom[0], weights.y), "write", beside=True)
    return board
