"""The newest rows of a source as NumPy arrays, in bounded memory."""

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
    """All rows of a source: `values` is rows × devices × metrics, with NaN for a missing number."""

    source: str
    metrics: tuple[str, ...]
    devices: tuple[Device, ...]
    times: Numbers
    values: Numbers
    every: float = 0.1

    def column(self, device: str, metric: str) -> tuple[Numbers, Numbers]:
        """Returns times and values of a metric of a device, without missing numbers."""
        import numpy as np

        if metric not in self.metrics:
            return np.empty(0), np.empty(0)
        place = [known.key for known in self.devices].index(device)
        values = self.values[:, place, self.metrics.index(metric)]  # (rows,)
        there = ~np.isnan(values)
        return self.times[there], values[there]

    def busy(self, device: str) -> tuple[Numbers, Numbers, Numbers]:
        """Returns times, the busy seconds up to each, and the seconds of known utilisation.

        The mean utilisation between two moments is the growth of the second by that of the third.
        """
        import numpy as np

        times, used = self.column(device, "utilisation")
        steps = np.diff(times, prepend=times[:1])
        # Two samples further apart say nothing about the time between them.
        steps[steps > max(3 * self.every, 1.0)] = 0.0
        # A utilisation counter describes the time before it.
        return times, np.cumsum(steps * used / 100), np.cumsum(steps)


class Columns:
    """Collects the rows of a source, or the newest rows if a capacity of numbers is given."""

    def __init__(self, source: Source, every: float = 0.1, capacity: int | None = None) -> None:
        self.source, self._every = source, every
        self._shape = len(source.devices), len(source.metrics)
        self._most = capacity and capacity // max(1, self._shape[0] * self._shape[1])
        self._newest = float("-inf")
        self._waiting: list[tuple[float, list[Any]]] = []  # rows that are not in an array yet
        self._blocks: list[tuple[Numbers, Numbers]] = []  # times, and values as in Series

    def add(self, row: list[Any]) -> None:
        """Add a row: source, time, the values of each device. Raises Damage if it does not fit."""
        devices, metrics = self._shape
        time, *values = row[1:] or [None]
        if len(values) != devices or not all(
            isinstance(own, list) and len(own) == metrics for own in values
        ):
            raise Damage("is a row that does not fit its source")
        numbers = [time, *(value for own in values for value in own)]
        if (
            not set(map(type, numbers)) <= _KNOWN
            or max(map(abs, filter(None, numbers)), default=0) > 1e300
        ):
            raise Damage("is a row with something that is not a number")
        if time is None or not time >= self._newest:
            raise Damage("is a row that is older than the row before it")
        self._newest = time
        self._waiting.append((time, values))
        if len(self._waiting) >= _TOGETHER:
            self._convert()

    def series(self) -> Series:
        """Returns the rows so far, as read-only arrays."""
        import numpy as np

        self._convert()
        empty = np.empty(0), np.empty((0, *self._shape))
        times, values = map(np.concatenate, zip(empty, *self._blocks, strict=True))
        if self._most:
            times, values = times[-self._most :], values[-self._most :]
        times.setflags(write=False)
        values.setflags(write=False)
        of = self.source
        return Series(of.name, of.metrics, of.devices, times, values, self._every)

    def _convert(self) -> None:
        """Put the waiting rows into arrays, and drop arrays without any of the newest rows."""
        import numpy as np

        if not self._waiting:
            return
        times = np.array([time for time, _ in self._waiting], dtype=float)
        values = np.array([values for _, values in self._waiting], dtype=float)
        values = values.reshape(len(times), *self._shape)  # (rows, devices, metrics)
        self._blocks.append((times, values))
        self._waiting.clear()
        rows = sum(len(times) for times, _ in self._blocks)
        while self._most and rows - len(self._blocks[0][0]) >= self._most:
            rows -= len(self._blocks.pop(0)[0])
