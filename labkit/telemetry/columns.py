"""The rows of one source as NumPy arrays: sums over time, and bounded memory by thinning.

Sums are computed when rows arrive, so that they stay exact when old rows are thinned. From
utilisation: `busy_seconds` (the time at full use that would be as much) and `covered_seconds` (the
time for which utilisation is known); from power: `joules` and `powered_seconds`. The mean between
two moments is the growth of the one over the growth of the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from labkit.telemetry.format import Damage
from labkit.telemetry.metrics import METRICS, Device

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

__all__ = ["COMPUTED", "Columns", "Series"]

_SUMS = {"utilisation": ("busy_seconds", "covered_seconds"), "power": ("joules", "powered_seconds")}
COMPUTED = {name for pair in _SUMS.values() for name in pair}
# A machine of 256 cores keeps few rows rather than much memory: 32 MB a source.
_MOST_NUMBERS, _LEAST_ROWS = 4_000_000, 400
_BLOCK = 4  # rows that become two


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
    """Collects the rows of one source; with a capacity, not more rows than that.

    A source that is named again may have other devices. The columns are all that it ever had.
    """

    def __init__(self, source: str, every: float, capacity: int | None = None) -> None:
        import numpy as np

        self.source = source
        self.edges: Sequence[float] = ()  # where spans begin and end: rows beside them stay
        self._capacity = capacity
        # Two samples further apart say nothing about the time between them.
        self._longest = max(3 * every, 1.0)
        self._named: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
        self._metrics: tuple[str, ...] = ()
        self._devices: dict[str, Device] = {}
        # Of the last sample of a device and a metric: time, value, sum and covered time.
        self._last: dict[tuple[str, str], tuple[float, float, float, float]] = {}
        self._newest = -np.inf
        # Times, values and levels; a level says how often these rows were thinned.
        self._blocks: list[tuple[Numbers, Numbers, NDArray[np.int8]]] = []

    def name(self, metrics: tuple[str, ...], devices: tuple[Device, ...]) -> None:
        """The rows that follow have these columns."""
        import numpy as np

        self._named = (metrics, tuple(device.key for device in devices))
        computed = (name for metric in metrics for name in _SUMS.get(metric, ()))
        self._metrics = tuple(dict.fromkeys((*self._metrics, *metrics, *computed)))
        self._devices |= {device.key: device for device in devices}
        shape = (len(self._devices), len(self._metrics))
        for at, (times, values, levels) in enumerate(self._blocks):
            wider = np.full((len(times), *shape), np.nan)
            wider[:, : values.shape[1], : values.shape[2]] = values
            self._blocks[at] = (times, wider, levels)

    def numbers(self, rows: list[list[Any]]) -> tuple[Numbers, Numbers]:
        """Times and values of rows as `json.loads` gives them; Damage if they do not fit."""
        import numpy as np

        metrics, keys = self._named
        try:
            times = np.array([row[1] for row in rows], dtype=float)
            values = np.array([row[2:] for row in rows], dtype=float)
        except (IndexError, OverflowError, TypeError, ValueError) as fault:
            raise Damage("is a row that does not fit its source") from fault
        shape = (len(rows), len(keys), len(metrics)) if keys else (len(rows), 0)
        if values.shape != shape or not np.isfinite(times).all() or np.isinf(values).any():
            raise Damage("is a row that does not fit its source")
        if (np.diff(times, prepend=self._newest) < 0).any():
            raise Damage("is a row that is older than the row before it")
        return times, values.reshape(len(rows), len(keys), len(metrics))

    def append(self, times: Numbers, values: Numbers) -> None:
        """Add what `numbers` gave."""
        import numpy as np

        metrics, keys = self._named
        wide = np.full((len(times), len(self._devices), len(self._metrics)), np.nan)
        for at, key in enumerate(self._devices):
            if key not in keys:
                continue
            given = values[:, keys.index(key)]
            for metric, column in zip(metrics, given.T, strict=True):
                wide[:, at, self._metrics.index(metric)] = column
                # A recording that was saved after thinning brings its sums along.
                if metric in _SUMS and _SUMS[metric][0] not in metrics:
                    known = ~np.isnan(column)
                    sums = self._integrate(key, metric, times[known], column[known])
                    for name, sum_ in zip(_SUMS[metric], sums, strict=True):
                        wide[known, at, self._metrics.index(name)] = sum_
        self._blocks.append((times, wide, np.zeros(len(times), np.int8)))
        self._newest = times[-1]
        while self._capacity and sum(len(block[0]) for block in self._blocks) > self._limit():
            self._thin()

    def series(self) -> Series:
        """All rows as they are now, read-only."""
        times, values, levels = self._merged()
        thinned = bool(levels.any()) or bool(COMPUTED & set(self._named[0]))
        # Nothing here writes to these arrays any more.
        times.setflags(write=False)
        values.setflags(write=False)
        devices = tuple(self._devices.values())
        return Series(self.source, self._metrics, devices, times, values, thinned)

    def _integrate(
        self, key: str, metric: str, times: Numbers, samples: Numbers
    ) -> tuple[Numbers, Numbers]:
        """The sum over time and the covered time at these samples, continued from the last one."""
        import numpy as np

        at, value, total, covered = self._last.get((key, metric), (-np.inf, 0.0, 0.0, 0.0))
        step = np.diff(times, prepend=at)
        step[step > self._longest] = 0.0
        if metric == "utilisation":
            height = samples / 100  # a utilisation counter tells of the time before it
        else:
            height = (samples + np.concatenate([[value], samples[:-1]])) / 2
        sums = total + np.cumsum(step * height), covered + np.cumsum(step)
        if len(times):
            last = (times[-1], samples[-1], sums[0][-1], sums[1][-1])
            self._last[key, metric] = last
        return sums

    def _limit(self) -> int:
        numbers = max(1, len(self._devices) * len(self._metrics))
        most = max(_LEAST_ROWS, _MOST_NUMBERS // numbers)
        return max(4 * _BLOCK, min(self._capacity or most, most))

    def _merged(self) -> tuple[Numbers, Numbers, NDArray[np.int8]]:
        import numpy as np

        shape = (0, len(self._devices), len(self._metrics))
        empty = (np.empty(0), np.empty(shape), np.empty(0, np.int8))
        if len(self._blocks) != 1:
            times, values, levels = zip(empty, *self._blocks, strict=True)
            merged = (np.concatenate(times), np.concatenate(values), np.concatenate(levels))
            self._blocks = [merged]
        return self._blocks[0]

    def _thin(self) -> None:
        """Thin the longest stretch of one level in the older half.

        Each level then has about as many rows and covers twice the time of the next: the first
        minutes of a long day stay visible, and the last ones are complete.
        """
        import numpy as np

        times, values, levels = self._merged()
        old = len(times) // 2
        held = _beside(times[:old], self.edges)
        if held.sum() > old / 2:  # too many spans to hold their edges
            held[:] = False
        starts = np.flatnonzero(np.diff(levels[:old], prepend=levels[0] + 1))
        rows = np.add.reduceat(~held, starts, dtype=int)
        longest = len(rows) - 1 - int(rows[::-1].argmax())  # of equals the newest
        start, end = int(starts[longest]), int([*starts[1:], old][longest])
        if rows[longest] < _BLOCK:
            start, end = 0, old
        loose = start + np.flatnonzero(~held[start:end])
        loose = loose[: len(loose) // _BLOCK * _BLOCK]
        stay = np.setdiff1d(np.arange(start, end), loose)
        counters = np.array([m in METRICS and METRICS[m].counter for m in self._metrics], bool)
        when, what = _thinned(times[loose], values[loose], counters)
        fewer = np.concatenate([times[stay], when])
        order = np.argsort(fewer, kind="stable")
        level = np.full(len(fewer), min(int(levels[start]) + 1, 127), np.int8)
        self._blocks = [
            (times[:start], values[:start], levels[:start]),
            (fewer[order], np.concatenate([values[stay], what])[order], level),
            (times[end:], values[end:], levels[end:]),
        ]


def _beside(times: Numbers, edges: Sequence[float]) -> NDArray[np.bool_]:
    """The rows before and after each edge of a span: they are not thinned."""
    import numpy as np

    after = np.searchsorted(times, np.asarray(edges, dtype=float))
    rows = np.concatenate([after - 1, after])
    held = np.zeros(len(times), bool)
    held[rows[(rows >= 0) & (rows < len(times))]] = True
    return held


def _thinned(
    times: Numbers, values: Numbers, counter: NDArray[np.bool_]
) -> tuple[Numbers, Numbers]:
    """Of four rows two: of each column the smallest and the largest value, in their order; of a
    counter the first and the last.
    """
    import numpy as np

    blocks = values.reshape(-1, _BLOCK, *values.shape[1:])
    known = ~np.isnan(blocks)
    first, last = known.argmax(1), _BLOCK - 1 - known[:, ::-1].argmax(1)
    low = np.where(known, blocks, np.inf).argmin(1)
    high = np.where(known, blocks, -np.inf).argmax(1)
    early = np.where(counter, first, np.minimum(low, high))
    late = np.where(counter, last, np.maximum(low, high))
    two = [np.take_along_axis(blocks, at[:, None], 1)[:, 0] for at in (early, late)]
    # A single value goes to the row that is nearer.
    single = known.sum(1) == 1
    two[0][single & (first >= _BLOCK // 2)] = np.nan
    two[1][single & (first < _BLOCK // 2)] = np.nan
    when = times.reshape(-1, _BLOCK)[:, [0, _BLOCK - 1]]
    return when.reshape(-1), np.stack(two, axis=1).reshape(-1, *values.shape[1:])
