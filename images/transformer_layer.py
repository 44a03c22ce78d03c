"""A transformer layer on two ranks."""

from __future__ import annotations

from labkit.views.sketch import Box, Sketch

ALT = (
    "A transformer layer on two ranks. Both hold the same input x. In the attention block rank 0 "
    "has heads 0 to 3 and rank 1 has heads 4 to 7; an all-reduce sums the parts, and x is added. "
    "In the MLP block each rank has half of the columns of W1 and the rows of W2 that belong to "
    "them; a second all-reduce sums the parts, and the input of the block is added. Both ranks end "
    "with the same output y."
)

FIRST, SECOND, SHARED = 0, 1, 2


def draw() -> Sketch:
    board = Sketch(
        "A transformer layer with tensor parallelism",
        352,
        "The weights are sharded, x is on every rank. Each block ends with one all-reduce.",
    )
    for x, width, words in ((100, 140, "attention, by heads"), (380, 244, "MLP")):
        board.text(x + width / 2, 92, words, size=9.5, bold=True, align="center")
    sums = [
        board.box(x, 112, 84, 204, "all-reduce\n+ input", series=SHARED, hatch=True, size=9)
        for x in (268, 652)
    ]
    for rank, y in enumerate((108, 218)):
        frame = board.frame(24, y, 752, 102, "")
        board.text(36, y + 14, f"rank {rank}", size=9, bold=True, faint=True, inside=frame)
        heads = "heads 0 to 3" if rank == 0 else "heads 4 to 7"
        level = y + 32
        boxes = [
            board.box(36, level, 36, 44, "x", series=SHARED),
            board.box(100, level, 140, 44, f"{heads}\nWq, Wk, Wv, Wo", series=rank, size=9),
            board.box(380, level, 108, 44, "half of the\ncolumns of W1", series=rank, size=9),
            board.box(516, level, 108, 44, "half of the\nrows of W2", series=rank, size=9),
        ]
        ends = [(sum_.x, level + 22) for sum_ in sums]
        board.arrow(boxes[0].right, boxes[1].left)
        board.arrow(boxes[1].right, ends[0])
        board.arrow((sums[0].x + sums[0].width, level + 22), boxes[2].left)
        board.arrow(boxes[2].right, boxes[3].left)
        board.arrow(boxes[3].right, ends[1])
        _output(board, sums[1], level)
    board.text(
        24, 336, "Backward the arrows turn round: one all-reduce for the input of each block. With "
        "the forward pass that is four.", size=9, faint=True,
    )  # fmt: skip
    return board


def _output(board: Sketch, after: Box, level: float) -> None:
    out = board.box(752, level + 8, 20, 28, "y", series=SHARED, size=9)
    board.arrow((after.x + after.width, level + 22), out.left)
