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

__all__ = ["SUMS", "Columns", "Series"]

SUMS = {"utilisation": ("busy_seconds", "covered_seconds"), "power": ("joules", "powered_seconds")}
_COMPUTED = {name for pair in SUMS.values() for name in pair}
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
        self._integrals: dict[str, _Integral] = {}
        self._last = -np.inf
        self._rows = 0
        # Times, values and levels; a level says how often these rows were thinned.
        self._blocks: list[tuple[Numbers, Numbers, NDArray[np.int8]]] = []

    def name(self, metrics: tuple[str, ...], devices: tuple[Device, ...]) -> None:
        """The rows that follow have these columns."""
        import numpy as np

        self._named = (metrics, tuple(device.key for device in devices))
        computed = [
            name
            for metric, pair in SUMS.items()
            # A recording that was saved after thinning brings its sums along.
            if metric in metrics and not set(pair) & set(metrics)
            for name in pair
        ]
        self._metrics = tuple(dict.fromkeys((*self._metrics, *metrics, *computed)))
        self._devices |= {device.key: device for device in devices}
        for metric, (total, _) in SUMS.items():
            if total in computed and metric not in self._integrals:
                self._integrals[metric] = _Integral(metric, self._longest)
        shape = (len(self._devices), len(self._metrics))
        for at, (times, values, levels) in enumerate(self._blocks):
            if values.shape[1:] != shape:
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
        if (np.diff(times, prepend=self._last) < 0).any():
            raise Damage("is a row that is older than the row before it")
        return times, values.reshape(len(rows), len(keys), len(metrics))

    def append(self, times: Numbers, values: Numbers) -> None:
        """Add what `numbers` gave."""
        import numpy as np

        metrics, keys = self._named
        wide = np.full((len(times), len(self._devices), len(self._metrics)), np.nan)
        devices = list(self._devices)
        down = [self._metrics.index(metric) for metric in metrics]
        wide[np.ix_(range(len(times)), [devices.index(key) for key in keys], down)] = values
        for metric, integral in self._integrals.items():
            sums = integral.extend(times, wide[:, :, self._metrics.index(metric)])
            for name, column in zip(SUMS[metric], sums, strict=True):
                if name not in metrics:
                    wide[:, :, self._metrics.index(name)] = column
        self._blocks.append((times, wide, np.zeros(len(times), np.int8)))
        self._last = times[-1] if len(times) else self._last
        self._rows += len(times)
        while self._capacity is not None and self._rows > self._limit(self._capacity):
            self._thin()

    def series(self, *, thinned: bool = False) -> Series:
        """All rows as they are now, read-only."""
        times, values, levels = self._merged()
        devices = tuple(self._devices.values())
        thinned = thinned or bool(levels.any()) or bool(_COMPUTED & set(self._named[0]))
        # Nothing writes to these arrays: `append` and `_thin` make new ones.
        times.setflags(write=False)
        values.setflags(write=False)
        return Series(self.source, self._metrics, devices, times, values, thinned)

    def _limit(self, capacity: int) -> int:
        numbers = max(1, len(self._devices) * len(self._metrics))
        return max(4 * _BLOCK, min(capacity, max(_LEAST_ROWS, _MOST_NUMBERS // numbers)))

    def _merged(self) -> tuple[Numbers, Numbers, NDArray[np.int8]]:
        import numpy as np

        if len(self._blocks) != 1:
            shape = (0, len(self._devices), len(self._metrics))
            empty = (np.empty(0), np.empty(shape), np.empty(0, np.int8))
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
        old = levels[: len(levels) // 2]
        held = _beside(times[: len(old)], self.edges)
        if (~held).sum() < len(old) / 2:  # too many spans to hold their edges
            held[:] = False
        start, end = _longest_stretch(old, held)
        loose = start + np.flatnonzero(~held[start:end])
        loose = loose[: len(loose) // _BLOCK * _BLOCK]
        counters = np.array([m in METRICS and METRICS[m].counter for m in self._metrics], bool)
        when, what = _thinned(times[loose], values[loose], counters)
        stay = np.setdiff1d(np.arange(start, end), loose)
        fewer = np.concatenate([times[stay], when])
        order = np.argsort(fewer, kind="stable")
        level = np.full(len(fewer), min(int(levels[start]) + 1, 127), np.int8)
        self._blocks = [
            (times[:start], values[:start], levels[:start]),
            (fewer[order], np.concatenate([values[stay], what])[order], level),
            (times[end:], values[end:], levels[end:]),
        ]
        self._rows = sum(len(times) for times, _, _ in self._blocks)


def _beside(times: Numbers, edges: Sequence[float]) -> NDArray[np.bool_]:
    """The rows before and after each edge of a span: they are not thinned."""
    import numpy as np

    after = np.searchsorted(times, np.asarray(edges, dtype=float))
    rows = np.concatenate([after - 1, after])
    held = np.zeros(len(times), bool)
    held[rows[(rows >= 0) & (rows < len(times))]] = True
    return held


def _longest_stretch(levels: NDArray[np.int8], held: NDArray[np.bool_]) -> tuple[int, int]:
    """From where to where, not counting rows that are held; of equals the newest."""
    import numpy as np

    starts = np.flatnonzero(np.diff(levels, prepend=levels[0] + 1))
    loose = np.add.reduceat(~held, starts, dtype=int)
    longest = len(loose) - 1 - int(loose[::-1].argmax())
    if loose[longest] < _BLOCK:
        return 0, len(levels)
    return int(starts[longest]), int([*starts[1:], len(levels)][longest])


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
    two = np.stack(
        [np.take_along_axis(blocks, at[:, None], 1)[:, 0] for at in (early, late)], axis=1
    )
    # A single value goes to the row that is nearer.
    single = known.sum(1) == 1
    two[:, 0][single & (first >= _BLOCK // 2)] = np.nan
    two[:, 1][single & (first < _BLOCK // 2)] = np.nan
    when = times.reshape(-1, _BLOCK)[:, [0, _BLOCK - 1]]
    return when.reshape(-1), two.reshape(-1, *values.shape[1:])


class _Integral:
    """One metric integrated over time, from block to block of rows; one column for each device."""

    def __init__(self, metric: str, longest: float) -> None:
        import numpy as np

        self._metric, self._longest = metric, longest
        # Of the last sample: its time and value; the integral and the covered time up to it.
        self._at, self._value, self._total, self._covered = np.full((4, 0), np.nan)

    def extend(self, times: Numbers, samples: Numbers) -> tuple[Numbers, Numbers]:
        """The integral and the covered time at these rows; NaN where there is no sample."""
        import numpy as np

        new = samples.shape[1] - len(self._at)
        when = np.vstack([np.append(self._at, np.full(new, -np.inf)), _columns(times, samples)])
        what = np.vstack([np.append(self._value, np.zeros(new)), samples])
        # For each row and device, the row of the sample before this one; row 0 is carried over.
        missing = np.isnan(samples)
        rows = np.where(missing, 0, np.arange(1, len(what))[:, None])
        latest = np.maximum.accumulate(np.vstack([np.zeros_like(rows[:1]), rows]), axis=0)
        before = latest[:-1]
        step = times[:, None] - np.take_along_axis(when, before, 0)
        step[missing | (step > self._longest)] = 0.0
        now = np.where(missing, 0.0, samples)
        if self._metric == "utilisation":
            grown = step * now / 100  # a utilisation counter tells of the time before it
        else:
            grown = step * (now + np.take_along_axis(what, before, 0)) / 2
        total = np.cumsum(grown, axis=0) + np.append(self._total, np.zeros(new))
        covered = np.cumsum(step, axis=0) + np.append(self._covered, np.zeros(new))
        if len(times):
            self._at = np.take_along_axis(when, latest[-1:], 0)[0]
            self._value = np.take_along_axis(what, latest[-1:], 0)[0]
            self._total, self._covered = total[-1], covered[-1]
        return np.where(missing, np.nan, total), np.where(missing, np.nan, covered)


def _columns(times: Numbers, samples: Numbers) -> Numbers:
    import numpy as np

    return np.broadcast_to(times[:, None], samples.shape)
