"""Batch normalisation on two replicas: each has statistics of its own, and one is saved."""

from __future__ import annotations

from labkit.views.sketch import Sketch

SAVED = 2  # the colour of what model.save keeps
ALT = (
    "Batch normalisation on two replicas, with a batch of the numbers 0 to 7. Replica 0 gets 0 to "
    "3 and moves its mean towards 1.5; replica 1 gets 4 to 7 and moves its mean towards 5.5. "
    "model.save keeps the mean of replica 0. With synchronized=True both move towards 3.5."
)


def draw() -> Sketch:
    board = Sketch(
        "Batch normalisation on two replicas",
        300,
        "A batch of eight numbers. Each replica moves its own mean towards that of its own part.",
    )
    for replica, mean in ((0, "1.5"), (1, "5.5")):
        y = 84 + 96 * replica
        board.frame(24, y, 470, 82, f"replica {replica}")
        for k in range(4):
            board.box(40 + 42 * k, y + 30, 34, 36, str(4 * replica + k), series=replica, size=10)
        own = board.box(252, y + 30, 86, 36, f"mean {mean}", series=replica, size=9.5)
        board.arrow((204, y + 48), own.left)
        moving = board.box(372, y + 30, 106, 36, "moving mean", series=replica, size=9.5)
        board.arrow(own.right, moving.left)
        if replica == 0:
            saved = board.box(540, y + 30, 106, 36, "model.save", series=SAVED, bold=True, size=9.5)
            board.arrow(moving.right, saved.left)
    board.text(593, 180 + 40, "(not saved)", size=9.5, faint=True, align="center")
    board.text(
        24, 282, "synchronized=True: both move towards 3.5, the mean of all eight.", size=9.5
    )
    return board
