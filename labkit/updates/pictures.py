"""The diagrams of this room, drawn from simulated runs: what they show is what would happen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.kinds import modelled
from labkit.updates.simulator import simulate

if TYPE_CHECKING:
    from labkit.updates.record import Gradient, Updates
    from labkit.views.sketch import Diagram, Sketch

__all__ = ["diagrams"]

LEFT, RIGHT = 118.0, 772.0
LANE, TALL = 40.0, 30.0
KIND = modelled("worker 2 takes twice as long as the others; messages take no time")


def diagrams() -> dict[str, Diagram]:
    """The diagrams of this room by name."""
    from labkit.views.sketch import Diagram

    return {
        "sync_and_async": Diagram(
            "08",
            _sync_and_async,
            "Two timelines of three workers, of which worker 2 takes twice as long. Synchronous: "
            "workers 0 and 1 wait half of the time, and three gradients together make each of four "
            "updates. Asynchronous: nobody waits, and each of twenty gradients makes an update of "
            "its own; each bar names the version that was read and the version that was made.",
        ),
        "stale_gradient": Diagram(
            "08",
            _stale_gradient,
            "The life of a stale gradient. The worker reads version 3 of the weights and computes. "
            "Meanwhile gradients of others make the versions 4 and 5. Its own gradient, computed "
            "from version 3, is applied to version 5 and makes version 6: its staleness is 2.",
        ),
    }


def _sync_and_async() -> Sketch:
    from labkit.views.sketch import Sketch

    board = Sketch(
        "Wait for everybody, or for nobody",
        376,
        "Three workers; worker 2 takes twice as long for a gradient. Time runs to the right.",
        kind=KIND,
    )
    slow = {2: 2.0}
    together = simulate(workers=3, mode="sync", slow=slow, seconds=8.0)
    alone = simulate(workers=3, mode="async", slow=slow, seconds=8.0)
    for top, run, words in (
        (88.0, together, "Synchronous: the three gradients of a round make one update"),
        (244.0, alone, "Asynchronous: every gradient makes an update at once"),
    ):
        board.text(24, top, words, bold=True)
        board.text(RIGHT, top, f"{run.updates} updates", align="right", bold=True)
        _lanes(board, run, top + 18)
    return board


def _lanes(board: Sketch, run: Updates, top: float) -> None:
    wide = (RIGHT - LEFT) / run.seconds
    for worker in range(run.workers):
        y = top + LANE * worker
        board.text(24, y + TALL / 2, f"worker {worker}")
        for one in run.of(worker):
            _gradient(board, one, y, wide)
        for one in run.of(worker):
            if one.waiting:
                x = LEFT + wide * one.arrived
                board.box(x, y, wide * one.waiting, TALL, "waits", dashed=True, size=9, corner=2)


def _gradient(board: Sketch, one: Gradient, y: float, wide: float) -> None:
    words = f"{one.read} → {one.written}"
    x, length = LEFT + wide * one.began, wide * one.computing
    board.box(x, y, length, TALL, words, series=0, size=9, corner=2)


def _stale_gradient() -> Sketch:
    from labkit.views.sketch import Sketch

    board = Sketch(
        "A stale gradient",
        328,
        "The weights change while a worker computes: its gradient belongs to an older version.",
    )
    board.text(24, 122, "the weights,\non the server")
    xs = {3: 150.0, 4: 310.0, 5: 470.0, 6: 630.0}
    boxes = {
        version: board.box(x, 100, 110, 44, f"version {version}", bold=version in (3, 6),
                           heavy=version in (3, 6))
        for version, x in xs.items()
    }  # fmt: skip
    for version in (3, 4, 5):
        board.arrow(boxes[version].right, boxes[version + 1].left)
    board.text(24, 257, "one worker")
    work = board.box(205, 236, 480, 42, "computes a gradient from version 3", series=0)
    board.arrow(boxes[3].bottom, (205, 236), "reads", beside=True)
    board.arrow((685, 236), boxes[6].bottom, "makes", beside=True)
    for version in (4, 5):
        x = xs[version] + 55
        board.arrow((x, 182), boxes[version].bottom)
        board.text(x, 202, "a gradient of\nanother worker", size=9, align="center")
    board.text(
        work.middle[0], 302, "two updates between reading and writing: staleness 2",
        bold=True, align="center",
    )  # fmt: skip
    return board
