"""Without a strategy, one device works."""

from __future__ import annotations

from labkit.views.sketch import Sketch

FIRST, SHARED = 0, 2
ALT = (
    "A program without a strategy on a machine with two devices: all five steps run on device "
    "0, while device 1 is idle, although TensorFlow may have taken its memory."
)


def draw() -> Sketch:
    board = Sketch(
        "Without a strategy, one device works",
        316,
        "TensorFlow sees both devices and places everything that it can on the first.",
    )
    program = board.box(24, 138, 132, 76, "your program,\nno strategy")
    board.frame(236, 80, 540, 92, "device 0")
    board.frame(236, 188, 540, 92, "device 1", dashed=True)
    board.text(
        262, 236, "no work (on a GPU its memory is taken all the same)", size=9.5, faint=True
    )
    for index in range(5):
        board.box(262 + 100 * index, 114, 88, 40, f"step {index + 1}", series=FIRST, size=9)
    board.arrow(program.at(1, 0.3), (196, program.at(1, 0.3)[1]), (196, 134), (262, 134))
    board.line(
        program.at(1, 0.7), (196, program.at(1, 0.7)[1]), (196, 236), (236, 236), dashed=True
    )
    board.text(752, 236, "idle", bold=True, align="right")
    return board
