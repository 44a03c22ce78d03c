"""The rows of one source as NumPy arrays: sums over time, in bounded memory.

Two sums of utilisation are computed when rows arrive, so that they stay exact when old rows are
thinned: `busy_seconds` (the time at full use that would be as much) and `covered_seconds` (the time
for which utilisation is known). The mean between two moments is the growth of the one over the
growth of the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from labkit.telemetry.format import Damage
from labkit.telemetry.metrics import Device

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]
    Block = tuple[Numbers, Numbers]  # times, and values as in Series

__all__ = ["COMPUTED", "Columns", "Series"]

COMPUTED = ("busy_seconds", "covered_seconds")
_KNOWN = {int, float, type(None)}
_TOGETHER = 512  # rows that become arrays at a time


@dataclass(frozen=True, eq=False, repr=False)
class Series:
    """All rows of one source: `values` is rows × devices × metrics, and NaN where there is none."""

    source: str
    metrics: tuple[str, ...]
    devices: tuple[Device, ...]
    times: Numbers
    values: Numbers
    thinned: bool = False
    """Old rows stand for several: they hold the extremes of them."""


class Columns:
    """Collects the rows of one source; with a capacity, not more numbers than that.

    A source that is named again may have other devices. The columns are all that it ever had.
    """

    def __init__(self, source: str, every: float, capacity: int | None = None) -> None:
        self.source = source
        self._capacity = capacity
        # Two samples further apart say nothing about the time between them.
        self._longest = max(3 * every, 1.0)
        self._named: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
        self._metrics: tuple[str, ...] = ()
        self._devices: dict[str, Device] = {}
        # Of the last known utilisation of a device: its time, and the two sums.
        self._last: dict[str, tuple[float, float, float]] = {}
        self._newest = float("-inf")
        self._waiting: list[Any] = []  # rows that are not in an array yet
        self._older: list[Block] = []
        self._recent: list[Block] = []
        self._step = 1  # samples for each of the older rows

    def name(self, metrics: tuple[str, ...], devices: tuple[Device, ...]) -> None:
        """The rows that follow have these columns."""
        self._convert()
        self._named = (metrics, tuple(device.key for device in devices))
        computed = COMPUTED if "utilisation" in metrics else ()
        self._metrics = tuple(dict.fromkeys((*self._metrics, *metrics, *computed)))
        self._devices |= {device.key: device for device in devices}
        for blocks in (self._older, self._recent):
            for at, (times, values) in enumerate(blocks):
                wider = self._empty(len(times))
                wider[:, : values.shape[1], : values.shape[2]] = values
                blocks[at] = (times, wider)

    def add(self, row: list[Any]) -> None:
        """One row: source, time, the values of each device. Damage if it does not fit."""
        metrics, keys = self._named
        time, *values = row[1:] or [None]
        if len(values) != len(keys) or not all(
            isinstance(one, list) and len(one) == len(metrics) for one in values
        ):
            raise Damage("is a row that does not fit its source")
        if not {type(value) for one in values for value in one} <= _KNOWN:
            raise Damage("is a row with something that is not a number")
        if type(time) not in (int, float) or not self._newest <= time < float("inf"):
            raise Damage("is a row that is older than the row before it")
        self._newest = time
        self._waiting.append((time, values))
        if len(self._waiting) >= _TOGETHER:
            self._convert()

    def series(self) -> Series:
        """All rows as they are now, read-only."""
        import numpy as np

        self._convert()
        times, values = _joined([(np.empty(0), self._empty(0)), *self._older, *self._recent])
        times.setflags(write=False)
        values.setflags(write=False)
        devices = tuple(self._devices.values())
        thinned = self._step > 1 or COMPUTED[0] in self._named[0]
        return Series(self.source, self._metrics, devices, times, values, thinned)

    def _empty(self, rows: int) -> Numbers:
        import numpy as np

        return np.full((rows, len(self._devices), len(self._metrics)), np.nan)

    def _convert(self) -> None:
        """Put the waiting rows into arrays, with their sums."""
        import numpy as np

        if not self._waiting:
            return
        metrics, keys = self._named
        times = np.array([time for time, _ in self._waiting], dtype=float)
        given = np.array([values for _, values in self._waiting], dtype=float)
        given = given.reshape(len(times), len(keys), len(metrics))
        given[np.isinf(given)] = np.nan
        self._waiting.clear()
        values = self._empty(len(times))
        places = [list(self._devices).index(key) for key in keys]
        columns = [self._metrics.index(metric) for metric in metrics]
        values[np.ix_(range(len(times)), places, columns)] = given
        # A recording that was saved after thinning brings its sums along.
        if "utilisation" in metrics and COMPUTED[0] not in metrics:
            sums = [self._metrics.index(name) for name in COMPUTED]
            for key, place in zip(keys, places, strict=True):
                used = values[:, place, self._metrics.index("utilisation")]
                known = np.flatnonzero(~np.isnan(used))
                values[known[:, None], place, sums] = self._integrate(
                    key, times[known], used[known]
                )
        self._recent.append((times, values))
        if self._capacity is not None:
            numbers = max(1, len(self._devices) * len(self._metrics))
            self._thin(max(4, self._capacity // (2 * numbers)))

    def _integrate(self, key: str, times: Numbers, used: Numbers) -> Numbers:
        """The two sums at these samples of utilisation, continued from the last one."""
        import numpy as np

        at, busy, covered = self._last.get(key, (-np.inf, 0.0, 0.0))
        step = np.diff(times, prepend=at)
        step[step > self._longest] = 0.0
        # A utilisation counter describes the time before it.
        grown = np.cumsum(np.stack([step * used / 100, step], axis=1), axis=0)
        sums: Numbers = np.array([busy, covered]) + grown
        if len(times):
            self._last[key] = (times[-1], *sums[-1].tolist())
        return sums

    def _thin(self, most: int) -> None:
        """At most so many recent rows, all of them whole, and so many older ones, whose resolution
        is halved whenever there are too many: the first minutes of a long day stay visible.
        """
        while _rows(self._recent) > most:
            times, values = _joined(self._recent)
            half = len(times) // 2
            old, self._recent = (times[:half], values[:half]), [(times[half:], values[half:])]
            self._older.append(_extremes(*old, 2 * self._step) if self._step > 1 else old)
            while _rows(self._older) > most:
                self._older = [_extremes(*_joined(self._older), 4)]
                self._step *= 2


def _rows(blocks: list[Block]) -> int:
    return sum(len(times) for times, _ in blocks)


def _joined(blocks: list[Block]) -> Block:
    import numpy as np

    times, values = zip(*blocks, strict=True)
    return np.concatenate(times), np.concatenate(values)


def _extremes(times: Numbers, values: Numbers, size: int) -> Block:
    """Of every `size` rows two: the lowest value of each column, and the highest. Of counters,
    which only grow, these are the first and the last.
    """
    import numpy as np

    first = np.arange(0, len(times), size)
    last = np.append(first[1:], len(times)) - 1
    lowest, highest = np.fmin.reduceat(values, first), np.fmax.reduceat(values, first)
    both = np.stack([lowest, highest], axis=1).reshape(-1, *values.shape[1:])
    return np.stack([times[first], times[last]], axis=1).ravel(), both
