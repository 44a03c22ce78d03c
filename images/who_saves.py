"""Who writes the checkpoint: the chief, to a temporary name, which it then renames."""

from __future__ import annotations

from labkit.views.sketch import Sketch

ALT = (
    "After step 300 worker 0, the chief, writes the file step-300.part and renames it to "
    "step-300; then worker 1, which has waited and written nothing, goes on with it. After a "
    "restart both workers read step-300."
)

SHARED = 2  # the colour of what all have in common


def draw() -> Sketch:
    board = Sketch(
        "Who writes the checkpoint",
        352,
        "All workers have the same weights. The chief writes to a temporary name, then renames it.",
    )
    board.frame(24, 80, 212, 248, "workers, after step 300")
    board.frame(320, 80, 216, 248, "a folder that all can read")
    board.frame(620, 80, 156, 248, "after a restart")
    half = board.box(336, 126, 184, 56, "step-300.part", mono=True, size=9, dashed=True, corner=3)
    done = board.box(
        336, 244, 184, 56, "step-300", series=SHARED, mono=True, size=9, corner=3, bold=True
    )
    chief = board.box(
        40, 126, 180, 56, "worker 0, the chief\nwrites", series=0, hatch=True, size=9.5
    )
    other = board.box(
        40, 244, 180, 56, "worker 1\nwaits, writes nothing", series=1, hatch=True, size=9.5
    )
    board.arrow(chief.right, half.left, "1 write")
    board.arrow(half.bottom, done.top, "2 rename", beside=True)
    board.arrow(chief.bottom, other.top, "3 continue", beside=True)
    for number, y in enumerate((126.0, 244.0)):
        back = board.box(636, y, 124, 56, f"worker {number}", series=number, hatch=True, size=9.5)
        middle = 578.0
        level = done.at(1, 0.2 + 0.3 * number)
        board.arrow(level, (middle, level[1]), (middle, back.left[1]), back.left)
    return board
