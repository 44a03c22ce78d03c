"""One source, looked at again and again: when, with which result, and what to do when it fails."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from labkit.telemetry.lines import row_line
from labkit.telemetry.metrics import Device, Reading, Source, State, Why

__all__ = ["Watch"]

WAITS = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)  # seconds until a source that failed is tried again


class Watch:
    """One source and how it fares. Has no thread and no clock: whoever looks says what time it is.

    `look` does what is due and gives the time of the next look, so that an hour can pass in a test
    within a second.
    """

    def __init__(self, source: Source, every: float, start: float) -> None:
        self.source = source
        self.devices: tuple[Device, ...] = ()
        self.states: tuple[State, ...] = ()  # what became known in the last look
        self.rows: list[str] = []  # lines of the last look, but for their source's number
        self.opened = False
        self._glance: Callable[[bool], bool] | None = None  # the source's, while all goes well
        self.news = False  # whether the last look opened the source
        self.glanced = False  # whether there are glances that were not worked out yet
        self._every, self._start = every, start
        self._failures = 0
        self._last = -math.inf  # time of the newest row

    def look(self, now: float, number: int = 0) -> float:
        """Open or read the source; never raises. Gives the time of the next look."""
        self.states, self.rows, self.news, self.glanced = (), [], False, False
        try:
            if not self.opened:
                self._open()
            self._take(self.source.read(), number)
        except Exception as fault:  # noqa: BLE001 - a source may raise anything, and says so itself
            return self._failed(now, fault)
        self._glance = getattr(self.source, "glance", None)
        if self._failures:
            self._failures = 0
            self.states += (self._state(now, "fine", f"{self.source.name} can be read again."),)
        # Nothing to look at: no driver comes up while somebody watches. A mark asks no more either.
        return self.due(now) if self.devices else math.inf

    def glance(self, marked: bool = False) -> bool:
        """Look now and work it out at the next look, where the source can. False: look at once."""
        try:
            if self._glance is None or not self._glance(marked):
                return False
        except Exception:  # noqa: BLE001 - the look that follows meets the same fault, and tells it
            return False
        self.glanced = True
        return True

    def recall(self, now: float, number: int = 0) -> float | None:
        """Work out what was glanced at; never raises. After a fault, the time of the next look."""
        self.states, self.rows, self.news, self.glanced = (), [], False, False
        source: Any = self.source
        try:
            self._take(source.recall(), number)
        except Exception as fault:  # noqa: BLE001 - as in `look`
            return self._failed(now, fault)
        return None

    def due(self, now: float) -> float:
        """The first tick after `now`. Ticks that were missed are left out, not made up for."""
        passed = math.floor((now - self._start) / self._every + 1e-6)
        return self._start + max(0, passed + 1) * self._every

    def close(self) -> None:
        """Let the source go; what it says about it is of no use to anybody any more."""
        self.opened, self._glance = False, None
        try:
            self.source.close()
        except Exception as fault:  # noqa: BLE001
            del fault

    def _open(self) -> None:
        self.devices, states = self.source.open()
        self.opened = self.news = True
        self.states += states

    def _take(self, reading: Reading, number: int) -> None:
        self.states += reading.states
        for row in reading.rows:
            if row.time <= self._last:  # time goes forward, or sums over time would be wrong
                continue
            if len(row.values) != len(self.devices):
                raise ValueError(
                    f"a row has {len(row.values)} devices in place of {len(self.devices)}"
                )
            self.rows.append(row_line(number, row, self._start))
            self._last = row.time

    def _failed(self, now: float, fault: Exception) -> float:
        self.close()
        wait = WAITS[min(self._failures, len(WAITS) - 1)]
        self._failures += 1
        reason = f"{type(fault).__name__}: {fault}".rstrip(".: ")
        self.states += (
            self._state(
                now,
                "silent",
                f"{self.source.name} cannot be read at the moment ({reason}). "
                f"It is tried again every {wait:g} s.",
            ),
        )
        return now + wait

    def _state(self, now: float, why: Why, says: str) -> State:
        return State(now, self.source.name, "", why, says)
