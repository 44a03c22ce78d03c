"""A world without real time: a clock that moves only when a piece of work says how long it took."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

from labkit.timing.log import Log, Machine, Timed


class World:
    """Nanoseconds that pass only in `work`."""

    def __init__(self) -> None:
        self.now = 0
        self.calls: list[str] = []

    def clock(self) -> int:
        return self.now

    def work(self, name: str, seconds: Iterable[float] | float) -> Callable[[], None]:
        """A program that takes the given seconds, call by call."""
        times = itertools.repeat(seconds) if isinstance(seconds, float) else iter(seconds)

        def call() -> None:
            self.calls.append(name)
            self.now += round(next(times) * 1e9)

        return call


def then(*first: float, rest: float) -> Iterable[float]:
    """These durations, and from then on always the same."""
    return itertools.chain(first, itertools.repeat(rest))


def log_of(**samples: list[float]) -> Log:
    """A log with these samples, as if timed today on this machine."""
    from datetime import datetime

    from labkit.hardware.survey import machine_text

    when = datetime.now().astimezone().isoformat(" ", "seconds")
    rounds = max(len(times) for times in samples.values())
    return Log(
        tuple(Timed(n, (9.0,), (1.0, 1.0), "stable", tuple(t)) for n, t in samples.items()),
        tuple(tuple(range(len(samples))) for _ in range(rounds)),
        rounds,
        "",
        Machine(machine_text(), {"python": "3"}, when, 0.0, 2),
        "",
        1,
    )
