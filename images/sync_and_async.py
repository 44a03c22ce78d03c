"""Synchronous and asynchronous updates."""

from __future__ import annotations

from labkit.kinds import modelled
from labkit.updates.record import Gradient, Updates
from labkit.updates.simulator import simulate
from labkit.views.sketch import Sketch

ALT = (
    "Two timelines of three workers, of which worker 2 takes twice as long. Synchronous: "
    "workers 0 and 1 wait half of the time, and three gradients together make each of four "
    "updates. Asynchronous: no worker waits, and each of twenty gradients makes an update of its "
    "own; each bar names the version that was read and the version that was made."
)

LEFT, RIGHT = 118.0, 772.0
LANE, TALL = 40.0, 30.0
KIND = modelled("worker 2 takes twice as long as the others; messages take no time")


def draw() -> Sketch:
    board = Sketch(
        "Synchronous and asynchronous updates",
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
