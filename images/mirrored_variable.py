"""A mirrored variable."""

from __future__ import annotations

from labkit.views.sketch import Sketch

ALT = (
    "A mirrored variable: one kernel of 784 by 128 as you see it, with copy 0 on replica 0 "
    "and copy 1 on replica 1. In a step the same amount is subtracted from both copies."
)


def draw() -> Sketch:
    board = Sketch(
        "A mirrored variable",
        330,
        "One variable for you, one copy on every replica, kept equal by equal updates.",
    )
    yours = board.box(24, 142, 160, 88, "kernel\n784 × 128", bold=True)
    board.text(104, 254, "what you see", size=9.5, faint=True, align="center")
    for number, y in enumerate((80, 196)):
        board.frame(264, y, 512, 100, f"replica {number}")
        copy = board.box(288, y + 36, 148, 44, f"copy {number}", series=number, hatch=True)
        after = board.box(
            604, y + 36, 148, 44, f"copy {number}, one step on", series=number, hatch=True, size=8.5
        )
        board.arrow(copy.right, after.left, "minus the same step")
        board.line(
            yours.at(1, 0.3 + 0.4 * number),
            (224, yours.at(1, 0.3 + 0.4 * number)[1]),
            (224, y + 58),
            copy.left,
        )
    return board
