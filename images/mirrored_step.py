"""One step of MirroredStrategy."""

from __future__ import annotations

from itertools import pairwise

from labkit.views.sketch import Sketch

SHARED = 2
ALT = (
    "One step of MirroredStrategy in five columns. 1 scatter: each replica gets half of the "
    "batch. 2 forward: each sums the losses of its images and divides by the global batch. 3 "
    "backward: each computes its gradient. 4 all-reduce: the sum of both gradients, on both. 5 "
    "update: both make the same new weights."
)


def draw() -> Sketch:
    board = Sketch(
        "One step of MirroredStrategy",
        392,
        "Losses are divided by the global batch, so the gradients' sum is that of the mean loss.",
    )
    columns = ((24, 108), (176, 100), (320, 100), (464, 140), (648, 128))
    heads = ("1 scatter", "2 forward", "3 backward", "4 all-reduce", "5 update")
    for (x, width), head in zip(columns, heads, strict=True):
        board.text(x + width / 2, 92, head, bold=True, align="center")
    shared = board.box(464, 112, 140, 240, "sum\nof gradients\n0 and 1", series=SHARED)
    for number, y in enumerate((112, 256)):
        replica = f"replica {number}\n"
        words = ("half of the\nbatch", f"{replica}losses ÷\nglobal batch", f"{replica}gradient")
        stops = [
            board.box(x, y, width, 96, word, series=number, hatch=True, size=9.5)
            for (x, width), word in zip(columns, words, strict=False)
        ]
        update = board.box(
            648, y, 128, 96, f"replica {number}\nsame new\nweights", series=SHARED, size=9.5
        )
        for before, after in pairwise(stops):
            board.arrow(before.right, after.left)
        level = update.left[1]
        board.arrow(stops[-1].right, (shared.x, level))
        board.arrow((shared.right[0], level), update.left)
    return board
