"""TF_CONFIG on two machines."""

from __future__ import annotations

from labkit.views.sketch import Sketch

ALT = (
    "Two machines, node1 and node2. The TF_CONFIG of both has the same cluster, worker "
    "node1:12345 and node2:12345. Its task is worker, index 0 on node1 and worker, index 1 on "
    "node2. Worker 0 and worker 1 all-reduce their gradients."
)

SHARED = 2  # the colour of what all have in common


def draw() -> Sketch:
    board = Sketch(
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
