"""A job on a cluster."""

from __future__ import annotations

from labkit.views.sketch import Box, Sketch

ALT = (
    "On the login node you submit with sbatch job.sh and look with squeue. Your job for 2 nodes "
    "stands in the queue behind another job for 64. When it is its turn, srun starts rank "
    "0 on node 1 and rank 1 on node 2, beside the jobs of others, and the output of both "
    "ranks comes to the file slurm-17.out."
)


def draw() -> Sketch:
    board = Sketch(
        "A job on a cluster",
        372,
        "You submit at the login node. The job runs later, on compute nodes, without you.",
    )
    board.frame(24, 80, 206, 268, "login node")
    sent = board.box(40, 124, 174, 48, "sbatch job.sh", mono=True, size=9.5, corner=3, fill="white")
    status = board.box(40, 196, 174, 48, "squeue --me", mono=True, size=9.5, corner=3, fill="white")
    logs = board.box(40, 282, 174, 48, "slurm-17.out", mono=True, size=9.5, corner=3, fill="white")
    board.frame(306, 80, 176, 190, "queue")
    waiting = [
        board.box(322, 118 + 48 * row, 144, 38, words, series=series, hatch=True, size=9)
        for row, (words, series) in enumerate(
            (("another job, 64", 5), ("you, 2", 0), ("others", 5))
        )
    ]
    board.arrow(sent.right, (306, sent.right[1]), "submit")
    board.arrow((306, status.right[1]), status.right, "when?")
    board.frame(558, 80, 218, 268, "compute nodes")
    nodes = []
    for number, mine in enumerate((True, True, False, False)):
        words = f"node {number + 1}: rank {number}" if mine else f"node {number + 1}: others"
        series = 0 if mine else 5
        y = 114.0 + 57 * number
        nodes.append(
            board.box(574, y, 186, 44, words, series=series, hatch=True, size=9.5, heavy=mine)
        )
    _from_queue(board, waiting[1], nodes[:2])
    out = nodes[1].at(0, 0.75)
    board.arrow(out, (520, out[1]), (520, logs.right[1]), logs.right)
    board.text(370, logs.right[1] - 12, "output of both ranks", size=9, align="center")
    return board


def _from_queue(board: Sketch, job: Box, nodes: list[Box]) -> None:
    """The arrow on which a job leaves the queue and becomes ranks."""
    for node in nodes:
        end = node.at(0, 0.4)
        board.arrow(job.right, (520, job.right[1]), (520, end[1]), end)
    board.text(501, 174, "srun", size=9, mono=True, align="center")
