"""A rank is killed, torchrun starts all ranks again, and they go on from the snapshot."""

from __future__ import annotations

from labkit.views.sketch import Sketch

DONE, LOST, FILE = 0, 1, 2  # colours
ALT = (
    "Two ranks over time. Both train epoch 0; rank 0 writes a snapshot. In epoch 1 rank 1 is "
    "killed; torchrun ends rank 0 as well, and epoch 1 is lost. torchrun starts both ranks again; "
    "they read the snapshot, train epoch 1 again, then epoch 2."
)
WIDTH, GAP = 112, 10


def draw() -> Sketch:
    board = Sketch(
        "Killed in epoch 1, and started again",
        330,
        "torchrun --max-restarts=3: all ranks begin again. The snapshot says where.",
    )
    rows = (96.0, 164.0)
    first, second = 100.0, 442.0
    for rank, y in zip((1, 0), rows, strict=True):
        board.text(24, y + 24, f"rank {rank}", size=10, bold=True)
        board.box(first, y, WIDTH, 48, "epoch 0", series=DONE)
        words = "epoch 1\nkilled" if rank else "epoch 1\nended"
        board.box(first + WIDTH + GAP, y, 86, 48, words, series=LOST, hatch=True, size=9.5)
        board.box(second, y, WIDTH, 48, "epoch 1", series=DONE)
        board.box(second + WIDTH + GAP, y, WIDTH, 48, "epoch 2", series=DONE)
    board.arrow((first + WIDTH + GAP + 86 + 8, 154), (second - 10, 154), "torchrun starts both")
    file = board.box(first + 40, 252, 190, 44, "snapshot: 1 epoch is done", series=FILE, size=9.5)
    board.arrow((first + WIDTH - 40, rows[1] + 48), (first + WIDTH - 40, file.y))
    board.text(first + WIDTH - 50, 232, "rank 0 writes", size=9, align="right")
    board.arrow(file.right, (second + 40, 274), (second + 40, rows[1] + 52))
    board.text(second + 50, 246, "both ranks read", size=9)
    return board
