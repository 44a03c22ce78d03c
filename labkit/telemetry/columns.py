"""The rows of one source as NumPy arrays: the newest ones, in bounded memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from labkit.telemetry.format import Damage, Source
from labkit.telemetry.metrics import Device

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

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

    def column(self, device: str, metric: str) -> tuple[Numbers, Numbers]:
        """Times and values of one metric of one device, without what is missing."""
        import numpy as np

        if metric not in self.metrics:
            return np.empty(0), np.empty(0)
        place = [one.key for one in self.devices].index(device)
        values = self.values[:, place, self.metrics.index(metric)]
        there = ~np.isnan(values)
        return self.times[there], values[there]

    def busy(self, device: str, every: float) -> tuple[Numbers, Numbers, Numbers]:
        """Times, seconds busy up to then, and seconds for which the utilisation is known.

        The mean utilisation between two moments is the growth of the second over the third.
        """
        import numpy as np

        times, used = self.column(device, "utilisation")
        steps = np.diff(times, prepend=times[:1])
        # Two samples further apart say nothing about the time between them.
        steps[steps > max(3 * every, 1.0)] = 0.0
        # A utilisation counter describes the time before it.
        return times, np.cumsum(steps * used / 100), np.cumsum(steps)


class Columns:
    """Collects the rows of one source; with a capacity, the newest ones of that many numbers."""

    def __init__(self, source: Source, capacity: int | None = None) -> None:
        self.source = source
        self._shape = len(source.devices), len(source.metrics)
        self._most = capacity and capacity // max(1, self._shape[0] * self._shape[1])
        self._newest = float("-inf")
        self._waiting: list[tuple[float, list[Any]]] = []  # rows that are not in an array yet
        self._blocks: list[tuple[Numbers, Numbers]] = []  # times, and values as in Series

    def add(self, row: list[Any]) -> None:
        """One row: source, time, the values of each device. Damage if it does not fit."""
        devices, metrics = self._shape
        time, *values = row[1:] or [None]
        if len(values) != devices or not all(
            isinstance(one, list) and len(one) == metrics for one in values
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
        """The rows as they are now, read-only."""
        import numpy as np

        self._convert()
        empty = np.empty(0), np.empty((0, *self._shape))
        times, values = map(np.concatenate, zip(empty, *self._blocks, strict=True))
        if self._most:
            times, values = times[-self._most :], values[-self._most :]
        times.setflags(write=False)
        values.setflags(write=False)
        return Series(self.source.name, self.source.metrics, self.source.devices, times, values)

    def _convert(self) -> None:
        """Put the waiting rows into arrays; drop arrays of which no row is among the newest."""
        import numpy as np

        if not self._waiting:
            return
        times = np.array([time for time, _ in self._waiting], dtype=float)
        values = np.array([values for _, values in self._waiting], dtype=float)
        values = values.reshape(len(times), *self._shape)
        values[np.isinf(values)] = np.nan
        self._blocks.append((times, values))
        self._waiting.clear()
        rows = sum(len(times) for times, _ in self._blocks)
        while self._most and rows - len(self._blocks[0][0]) >= self._most:
            rows -= len(self._blocks.pop(0)[0])
