"""Eight ranks, and the three groups of each."""

from __future__ import annotations

from labkit.views.figure import look
from labkit.views.sketch import Box, Sketch

ALT = (
    "Hybrid parallelism on eight ranks: two replicas of two stages of two parts. Ranks 0 and 1, 2 "
    "and 3, 4 and 5, 6 and 7 are tensor groups; ranks 0 and 2, 1 and 3, 4 and 6, 5 and 7 are "
    "pipeline groups; ranks 0 and 4, 1 and 5, 2 and 6, 3 and 7 are data groups."
)

REPLICAS = STAGES = PARTS = 2
TENSOR, PIPELINE, DATA = 1, 2, 0  # colours of the arrows


def draw() -> Sketch:
    board = Sketch(
        "Hybrid parallelism: who is in which group",
        404,
        "Eight ranks: 2 replicas × 2 stages × 2 parts. Each rank is in one group of each kind.",
    )
    chips = {}
    for replica in range(REPLICAS):
        x = 24 + 394.0 * replica
        frame = board.frame(x, 122, 358, 216, "")
        board.text(x + 179, 324, f"replica {replica}", size=9.5, bold=True, align="center",
                   inside=frame)  # fmt: skip
        for stage in range(STAGES):
            for part in range(PARTS):
                rank = (replica * STAGES + stage) * PARTS + part
                place = x + 22 + 204 * stage, 142 + 104.0 * part
                words = f"rank {rank}\nstage {stage}, part {part}"
                chips[replica, stage, part] = board.box(*place, 110, 56, words, size=9)
    for replica in range(REPLICAS):
        for n in range(2):
            both = chips[replica, n, 0].bottom, chips[replica, n, 1].top
            board.arrow(*both, "tensor", both=True, beside=True, color=look(TENSOR).color)
            both = chips[replica, 0, n].right, chips[replica, 1, n].left
            board.arrow(*both, "pipeline", both=True, color=look(PIPELINE).color)
    for stage in range(STAGES):
        for part in range(PARTS):
            _data(board, chips[0, stage, part], chips[1, stage, part], stage, part)
    return board


def _data(board: Sketch, left: Box, right: Box, stage: int, part: int) -> None:
    """Above the upper ranks and below the lower ones, from replica to replica."""
    away = 14 * (2 - stage)
    level = 122 - away if part == 0 else 346 + away
    start, end = (left.top, right.top) if part == 0 else (left.bottom, right.bottom)
    color = look(DATA).color
    board.arrow(start, (start[0], level), (end[0], level), end, both=True, color=color)
    if stage == 0:
        board.text(400, level, "data", size=9, align="center", backed="white")
