"""From a cell to four ranks."""

from __future__ import annotations

from labkit.views.sketch import Sketch

ALT = (
    "Left the kernel of your notebook with the call c.run(program). It sends the function to "
    "a fork server that holds TensorFlow, and gets back lines and results. The fork server "
    "forks ranks 0, 1, 2 and 3, which have a network of their own."
)

SHARED = 2  # the colour of what all have in common


def draw() -> Sketch:
    board = Sketch(
        "From a cell to four ranks",
        368,
        "The fork server keeps TensorFlow loaded. Each run gets fresh processes, forked from it.",
    )
    board.frame(24, 84, 200, 262, "your notebook's kernel")
    cell = board.box(40, 128, 168, 48, "c.run(program)", mono=True, size=9, corner=3, fill="white")
    shown = board.box(
        40, 226, 168, 96, "rank 0: ...\nrank 1: ...\n[result 0, ..., 3]", mono=True, size=8.5,
        corner=3, fill="white",
    )  # fmt: skip
    server = board.box(
        322, 128, 124, 194, "fork server,\nwarm", series=SHARED, hatch=True, bold=True
    )
    board.frame(540, 84, 236, 262, "a network of their own")
    board.arrow(cell.right, (server.x, cell.right[1]), "function")
    board.arrow((server.x, shown.right[1]), shown.right, "lines, results")
    for rank in range(4):
        y = 122 + 54 * rank
        made = board.box(556, y, 204, 44, f"rank {rank}", series=(0, 1, 3, 4)[rank], hatch=True)
        board.arrow((server.right[0], made.left[1]), made.left, *(["fork"] if rank == 0 else []))
    return board
