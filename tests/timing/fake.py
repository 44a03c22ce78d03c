"""A world without real time: a clock that moves only when a program says how long it took."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable


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
