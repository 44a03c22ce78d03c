"""A parameter server at work, to watch: a run of the simulator for each mode and each straggler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from labkit.arguments import number, whole
from labkit.updates.problems import Quadratic
from labkit.updates.simulator import simulate

if TYPE_CHECKING:
    from labkit.views.embed import Player

SHOWN = 30.0  # times that a gradient takes
MODES: dict[str, dict[str, Any]] = {
    "synchronous": {"mode": "sync"},
    "one backup": {"mode": "sync", "backups": 1},
    "asynchronous": {"mode": "async"},
}


def parameter_server(
    workers: int = 4, slow: tuple[float, ...] = (1, 2, 3, 5), learning_rate: float = 0.15
) -> Player:
    """Pulls and pushes between a server and its workers; choose the mode and the straggler there.

    >>> labkit.updates.parameter_server()                                    # doctest: +SKIP

    The last worker is `slow` times as slow as the others, whose gradients take 1 on average.
    """
    from labkit.views.updates_figure import server_player

    workers = whole("workers", workers, at_least=2, at_most=8)
    factors = [number("slow", factor, at_least=1, at_most=10) for factor in slow]
    problem = Quadratic((1.0, 0.3))
    # Until the end each worker's gradient is on record: a run has those that have arrived.
    seconds = SHOWN + 2 * max(factors) + 2
    runs = {
        (mode, factor): simulate(
            problem, workers=workers, seconds=seconds, network=0.3, jitter=0.15, seed=3,
            slow={workers - 1: factor}, learning_rate=learning_rate, **settings,
        )
        for factor in factors
        for mode, settings in MODES.items()
    }  # fmt: skip
    return server_player(runs, SHOWN)
