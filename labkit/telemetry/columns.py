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

    def __repr__(self) -> str:
        return f"Series({self.source}, {len(self.devices)} devices, {len(self.times)} rows)"


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
        self._older: list[tuple[Numbers, Numbers]] = []  # times and values
        self._recent: list[tuple[Numbers, Numbers]] = []
        self._step = 1  # samples for each of the older rows

    def name(self, metrics: tuple[str, ...], devices: tuple[Device, ...]) -> None:
        """The rows that follow have these columns."""
        import numpy as np

        self._convert()
        self._named = (metrics, tuple(device.key for device in devices))
        computed = COMPUTED if "utilisation" in metrics else ()
        self._metrics = tuple(dict.fromkeys((*self._metrics, *metrics, *computed)))
        self._devices |= {device.key: device for device in devices}
        for blocks in (self._older, self._recent):
            for at, (times, values) in enumerate(blocks):
                wider = np.full((len(times), len(self._devices), len(self._metrics)), np.nan)
                wider[:, : values.shape[1], : values.shape[2]] = values
                blocks[at] = (times, wider)

    def add(self, row: list[Any]) -> None:
        """One row of the recording: source, time, the values of each device. Damage if it does not
        fit.
        """
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
        none = (np.empty(0), np.empty((0, len(self._devices), len(self._metrics))))
        times, values = _joined([none, *self._older, *self._recent])
        times.setflags(write=False)
        values.setflags(write=False)
        devices = tuple(self._devices.values())
        thinned = self._step > 1 or COMPUTED[0] in self._named[0]
        return Series(self.source, self._metrics, devices, times, values, thinned)

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
        values = np.full((len(times), len(self._devices), len(self._metrics)), np.nan)
        places = list(self._devices)
        for key, samples in zip(keys, given.swapaxes(0, 1), strict=True):
            for metric, column in zip(metrics, samples.T, strict=True):
                values[:, places.index(key), self._metrics.index(metric)] = column
                # A recording that was saved after thinning brings its sums along.
                if metric == "utilisation" and COMPUTED[0] not in metrics:
                    known = ~np.isnan(column)
                    sums = self._integrate(key, times[known], column[known])
                    for name, total in zip(COMPUTED, sums, strict=True):
                        values[known, places.index(key), self._metrics.index(name)] = total
        self._recent.append((times, values))
        if self._capacity is not None:
            numbers = max(1, len(self._devices) * len(self._metrics))
            self._thin(max(4, self._capacity // (2 * numbers)))

    def _integrate(self, key: str, times: Numbers, used: Numbers) -> tuple[Numbers, Numbers]:
        """The two sums at these samples of utilisation, continued from the last one."""
        import numpy as np

        at, busy, covered = self._last.get(key, (-np.inf, 0.0, 0.0))
        step = np.diff(times, prepend=at)
        step[step > self._longest] = 0.0
        # A utilisation counter tells of the time before it.
        sums = busy + np.cumsum(step * used / 100), covered + np.cumsum(step)
        if len(times):
            self._last[key] = (times[-1], sums[0][-1], sums[1][-1])
        return sums

    def _thin(self, most: int) -> None:
        """At most so many recent rows, all of them whole, and so many older ones.

        The older rows have one resolution, which is halved whenever there are too many: the first
        minutes of a long day stay visible.
        """
        while _rows(self._recent) > most:
            times, values = _joined(self._recent)
            half = len(times) // 2
            old, self._recent = (times[:half], values[:half]), [(times[half:], values[half:])]
            self._older.append(_extremes(*old, 2 * self._step) if self._step > 1 else old)
            while _rows(self._older) > most:
                self._older = [_extremes(*_joined(self._older), 4)]
                self._step *= 2


def _rows(blocks: list[tuple[Numbers, Numbers]]) -> int:
    return sum(len(times) for times, _ in blocks)


def _joined(blocks: list[tuple[Numbers, Numbers]]) -> tuple[Numbers, Numbers]:
    import numpy as np

    times, values = zip(*blocks, strict=True)
    return np.concatenate(times), np.concatenate(values)


def _extremes(times: Numbers, values: Numbers, size: int) -> tuple[Numbers, Numbers]:
    """Of every `size` rows two: the lowest value of each column, and the highest. Of counters,
    which only grow, these are the first and the last.
    """
    import numpy as np

    first = np.arange(0, len(times), size)
    last = np.append(first[1:], len(times)) - 1
    lowest, highest = np.fmin.reduceat(values, first), np.fmax.reduceat(values, first)
    both = np.stack([lowest, highest], axis=1).reshape(-1, *values.shape[1:])
    return np.stack([times[first], times[last]], axis=1).ravel(), both
