"""A parameter server at work, to watch: a run of the simulator for each mode and each straggler."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from labkit.arguments import number, whole
from labkit.updates.problems import Quadratic
from labkit.updates.record import Updates
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
    """Returns a player of pulls and pushes, in which you choose the mode and the straggler.

    >>> labkit.updates.parameter_server()                                    # doctest: +SKIP

    The last worker is `slow` times as slow as the others, whose gradients take 1 on average.
    """
    from labkit.views.embed import Player, packed

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
    first = next(run for (mode, _), run in reversed(runs.items()) if mode == "asynchronous")
    picture = first.picture()
    alt = (
        f"A parameter server and {workers} workers: pulls and pushes as moving dots that "
        f"carry the version of the weights. Choose the mode and how slow worker "
        f"{workers - 1} is. The picture shows one of the runs: {picture.alt}"
    )
    still = replace(picture, alt=alt)
    content = {
        "workers": workers,
        "end": SHOWN,
        "kind": "modelled: labkit.updates.simulate, event by event; a gradient takes 1",
        "runs": [_content(mode, factor, run) for (mode, factor), run in runs.items()],
    }
    title = "A parameter server"
    return Player.of("parameter_server", title, alt, lambda: still, lambda: packed(content))


def _content(mode: str, slow: float, run: Updates) -> dict[str, Any]:
    """Returns what the page needs of a run: each gradient as [worker, read, written, times …]."""
    names = ("requested", "pulled", "began", "ended", "arrived", "ready", "applied")
    gradients = [
        [one.worker, one.read, one.written, *(round(getattr(one, name), 3) for name in names)]
        for one in run.gradients
        if one.requested < SHOWN
    ]
    losses = [[round(one.seconds, 3), float(f"{one.loss:.4g}")] for one in run.losses]
    return {
        "mode": mode,
        "slow": slow,
        "gradients": gradients,
        "losses": [one for one in losses if one[0] <= SHOWN],
    }
