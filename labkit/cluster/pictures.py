"""The pictures of the lectures on many workers and on clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.cluster.queue_model import Request, queue

if TYPE_CHECKING:
    from labkit.views.sketch import Box, Diagram, Sketch

__all__ = ["LINE", "diagrams"]

SHARED = 2  # the colour of what all have in common, as in the other lectures
# The queue of the picture: a large job waits, and a small one goes before it at nobody's cost.
LINE = (
    Request("A", 0, devices=5, limit=4),
    Request("B\nfirst in the line", 0.5, devices=8, limit=3),
    Request("C", 1, devices=2, limit=3),
    Request("D", 1.5, devices=1, limit=6),
)


def _sketch(title: str, height: float, subtitle: str) -> Sketch:
    from labkit.views.sketch import Sketch

    return Sketch(title, height, subtitle)


def _tf_config() -> Sketch:
    board = _sketch(
        "TF_CONFIG on two machines",
        376,
        "All are told the same cluster. Each is told who it is in there.",
    )
    workers = []
    for number, x in enumerate((24.0, 436.0)):
        board.frame(x, 80, 340, 272, f"machine node{number + 1}")
        board.text(x + 16, 124, "TF_CONFIG", size=9, mono=True, bold=True)
        board.box(
            x + 16, 138, 308, 62, '"cluster": {"worker": [\n  "node1:12345", "node2:12345"]}',
            series=SHARED, mono=True, size=8.5, corner=3,
        )  # fmt: skip
        board.box(
            x + 16, 208, 308, 40, f'"task": {{"type": "worker", "index": {number}}}',
            series=number, mono=True, size=8.5, corner=3, heavy=True,
        )  # fmt: skip
        workers.append(
            board.box(
                x + 80, 286, 180, 46, f"worker {number}", series=number, hatch=True, bold=True
            )
        )
        board.arrow((x + 170, 248), workers[-1].top)
    board.arrow(workers[0].right, workers[1].left, "all-reduce", both=True)
    return board


def _launcher() -> Sketch:
    board = _sketch(
        "From a cell to four ranks",
        368,
        "The launcher keeps TensorFlow loaded. Each run gets fresh processes, forked from it.",
    )
    board.frame(24, 84, 200, 262, "your notebook's kernel")
    cell = board.box(40, 128, 168, 48, "c.run(program)", mono=True, size=9, corner=3, fill="white")
    shown = board.box(
        40, 226, 168, 96, "rank 0: ...\nrank 1: ...\n[result 0, ..., 3]", mono=True, size=8.5,
        corner=3, fill="white",
    )  # fmt: skip
    launcher = board.box(
        322, 128, 124, 194, "launcher,\nwarm", series=SHARED, hatch=True, bold=True
    )
    board.frame(540, 84, 236, 262, "a network of their own")
    board.arrow(cell.right, (launcher.x, cell.right[1]), "function")
    board.arrow((launcher.x, shown.right[1]), shown.right, "lines, results")
    for rank in range(4):
        y = 122 + 54 * rank
        made = board.box(556, y, 204, 44, f"rank {rank}", series=(0, 1, 3, 4)[rank], hatch=True)
        board.arrow((launcher.right[0], made.left[1]), made.left, *(["fork"] if rank == 0 else []))
    return board


def _parameter_server() -> Sketch:
    board = _sketch(
        "A parameter server",
        408,
        "Nobody waits for the others: each worker fetches, computes, and sends, at its own pace.",
    )
    chief = board.box(
        300, 80, 200, 52, "chief\nhands out steps", series=SHARED, bold=True, size=9.5
    )
    server = board.box(
        250, 322, 300, 62, "parameter server\nthe only copy of the weights", series=3, hatch=True,
        bold=True,
    )  # fmt: skip
    for number, x in enumerate((24.0, 312.0, 600.0)):
        worker = board.box(
            x, 194, 176, 62, f"worker {number}\nforward, backward", series=(0, 1, 4)[number],
            hatch=True, size=9.5,
        )  # fmt: skip
        board.arrow(chief.at((1 + 2 * number) / 6, 1), worker.at(0.5, 0), dashed=True)
        up, down = (worker.at(0.36, 1), worker.at(0.64, 1))
        low, high = (
            server.at((0.09, 0.44, 0.79)[number], 0),
            server.at((0.21, 0.56, 0.91)[number], 0),
        )
        board.arrow(low, up)
        board.arrow(down, high)
    board.text(330, 289, "weights", size=9, align="right")
    board.text(470, 289, "gradients", size=9)
    return board


def _central_storage() -> Sketch:
    board = _sketch(
        "Central storage",
        294,
        "One machine. The weights lie in its main memory, once; the devices borrow them.",
    )
    board.frame(24, 80, 752, 190, "one machine")
    memory = board.box(
        304, 122, 192, 124, "main memory\nall weights\nadds up, updates", series=SHARED, hatch=True,
        bold=True,
    )  # fmt: skip
    for number, x in enumerate((44.0, 588.0)):
        device = board.box(
            x, 142, 168, 84, f"device {number}\nno weights\nof its own", series=number, hatch=True
        )
        inner, outer = (device.right, memory.left) if number == 0 else (device.left, memory.right)
        board.arrow((outer[0], 164), (inner[0], 164), "weights")
        board.arrow((inner[0], 206), (outer[0], 206), "gradients")
    return board


def _who_saves() -> Sketch:
    board = _sketch(
        "Who saves",
        352,
        "All have the same weights. One writes, to a name that nobody reads, and then renames it.",
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
    board.arrow(chief.bottom, other.top, "3 go on", beside=True)
    for number, y in enumerate((126.0, 244.0)):
        back = board.box(636, y, 124, 56, f"worker {number}", series=number, hatch=True, size=9.5)
        middle = 578.0
        level = done.at(1, 0.2 + 0.3 * number)
        board.arrow(level, (middle, level[1]), (middle, back.left[1]), back.left)
    return board


def _slurm() -> Sketch:
    board = _sketch(
        "A job on a cluster",
        372,
        "You ask at the login node. The work is done elsewhere, later, and without you.",
    )
    board.frame(24, 80, 206, 268, "login node")
    sent = board.box(40, 124, 174, 48, "sbatch job.sh", mono=True, size=9.5, corner=3, fill="white")
    asked = board.box(40, 196, 174, 48, "squeue --me", mono=True, size=9.5, corner=3, fill="white")
    logs = board.box(40, 282, 174, 48, "slurm-17.out", mono=True, size=9.5, corner=3, fill="white")
    board.frame(306, 80, 176, 190, "queue")
    waiting = [
        board.box(322, 118 + 48 * row, 144, 38, words, series=series, hatch=True, size=9)
        for row, (words, series) in enumerate((("somebody, 64", 5), ("you, 2", 0), ("others", 5)))
    ]
    board.arrow(sent.right, (306, sent.right[1]), "ask")
    board.arrow((306, asked.right[1]), asked.right, "when?")
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


def _backfill() -> Sketch:
    from labkit.views.queue_figure import queue_board

    return queue_board(
        queue(LINE, devices=8),
        "Small jobs may go before",
        "B needs all eight devices and waits for A. C fits into the hole: it ends before B can "
        "begin. D takes too long.",
    )


def diagrams() -> dict[str, Diagram]:
    """The pictures of this room for the folder of images."""
    from labkit.views.sketch import Diagram

    return {
        "tf_config": Diagram(
            "09",
            _tf_config,
            "Two machines, node1 and node2. The TF_CONFIG of both has the same cluster, worker "
            "node1:12345 and node2:12345. Its task is worker, index 0 on node1 and worker, index 1 "
            "on node2. Worker 0 and worker 1 all-reduce their gradients.",
        ),
        "launcher": Diagram(
            "09",
            _launcher,
            "Left the kernel of your notebook with the call c.run(program). It sends the function "
            "to a launcher that is warm, and gets back lines and results. The launcher forks rank "
            "0, 1, 2 and 3, which live in a network of their own.",
        ),
        "parameter_server": Diagram(
            "09",
            _parameter_server,
            "The chief hands out steps to workers 0, 1 and 2. Each of them fetches weights from "
            "the parameter server, which holds the only copy, and sends gradients back to it.",
        ),
        "central_storage": Diagram(
            "09",
            _central_storage,
            "One machine. Its main memory holds all weights, adds up and updates. Device 0 and "
            "device 1 have no weights of their own: they get the weights and send back gradients.",
        ),
        "who_saves": Diagram(
            "09",
            _who_saves,
            "After step 300 worker 0, the chief, writes the file step-300.part and renames it to "
            "step-300; then worker 1, which has waited and written nothing, goes on with it. After "
            "a restart both workers read step-300.",
        ),
        "slurm": Diagram(
            "10",
            _slurm,
            "On the login node you ask with sbatch job.sh and look with squeue. Your job for 2 "
            "nodes stands in the queue behind somebody who wants 64. When it is its turn, srun "
            "starts rank 0 on node 1 and rank 1 on node 2, beside the jobs of others, and the "
            "output of both ranks comes to the file slurm-17.out.",
        ),
        "backfill": Diagram(
            "10",
            _backfill,
            "Eight devices over 13 hours, modelled. Job A runs on five of them from hour 0 to 4. "
            "B, first in the line, needs all eight and runs from 4 to 7. C, asked for later, needs "
            "two for three hours and runs from 1 to 4, before B and without delaying it. D needs "
            "one for six hours, would delay B, and runs after it, from 7 to 13.",
        ),
    }
