"""Keys and values travel a ring of four ranks."""

from __future__ import annotations

from labkit.views.sketch import Sketch

RANKS = 4
ALT = (
    "Ring attention on four ranks. Each rank keeps its queries and begins with its own keys and "
    "values; in each of three hops they travel to the next rank. Rank 0 uses the blocks of ranks "
    "0, 3, 2, 1 in this order, rank 1 those of 1, 0, 3, 2, rank 2 those of 2, 1, 0, 3, and rank 3 "
    "those of 3, 2, 1, 0. With a causal mask and contiguous parts six of the sixteen blocks are "
    "hidden: those of a rank with a larger number."
)


def draw() -> Sketch:
    board = Sketch(
        "Ring attention",
        368,
        "Queries stay, keys and values travel. Hatched blocks are hidden by a causal mask.",
    )
    left, wide, high = 150, 118, 42
    for hop in range(RANKS):
        words = "own keys" if hop == 0 else f"after hop {hop}"
        board.text(left + 160 * hop + wide / 2, 76, words, size=9.5, bold=True, align="center")
    boxes = {}
    for rank in range(RANKS):
        y = 92 + 62 * rank
        board.box(24, y, 100, high, f"rank {rank}\nqueries {rank}", size=9)
        for hop in range(RANKS):
            owner = (rank - hop) % RANKS
            words = f"keys, values {owner}" + "\nnothing to do" * (owner > rank)
            boxes[rank, hop] = board.box(
                left + 160 * hop, y, wide, high, words, series=owner, hatch=owner > rank, size=9
            )
    for hop in range(RANKS - 1):
        for rank in range(RANKS - 1):
            board.arrow(boxes[rank, hop].right, boxes[rank + 1, hop + 1].left)
    words = "From rank 3 the keys go on to rank 0. A rank holds one block and the one that comes."
    board.text(24, 344, words, size=9, faint=True)
    return board
