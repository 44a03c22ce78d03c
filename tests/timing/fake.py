"""A world without real time: a clock that moves only when a program says how long it took."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable

from labkit.timing.results import Log, Machine, Timed


class World:
    """Seconds that pass only in `work`."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.calls: list[str] = []

    def work(self, name: str, seconds: Iterable[float] | float) -> Callable[[], None]:
        """A program that takes the given seconds, call by call."""
        times = itertools.repeat(seconds) if isinstance(seconds, float) else iter(seconds)

        def call() -> None:
            self.calls.append(name)
            self.seconds += next(times)

        return call


def log_of(**samples: list[float]) -> Log:
    """A log with these samples, as if timed by this process."""
    rounds = max(len(times) for times in samples.values())
    return Log(
        tuple(Timed(n, 9.0, (1.0, 1.0), tuple(times)) for n, times in samples.items()),
        tuple(tuple(range(len(samples))) for _ in range(rounds)),
        rounds,
        "",
        Machine("2 cores", "2026-11-21 23:59:59+00:00", 0.0, 2),
        "",
        1,
        os.getpid(),
    )
