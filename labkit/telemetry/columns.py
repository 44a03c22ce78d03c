"""All rows of one source, as numbers in columns: bounded, thinned when full, summed on arrival."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING, Any

from labkit.telemetry.counters import SUMS, Summing, longest_step
from labkit.telemetry.metrics import METRICS, Device
from labkit.telemetry.thinning import BLOCK, next_to_thin, thin

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

__all__ = ["Columns", "is_counter", "numbers"]

# A machine of 256 cores has few rows rather than much memory: 32 MB a source, and at least these.
_CELLS, _LEAST = 4_000_000, 400
_FIRST = 512


def is_counter(metric: str) -> bool:
    """Whether only its growth counts. A metric that this labkit does not know is a gauge."""
    return metric in METRICS and METRICS[metric].counter


def numbers(rows: list[Any], devices: int, metrics: int) -> tuple[Numbers, Numbers]:
    """Times and values (rows × devices × metrics) of parsed rows; ValueError if one is none."""
    import numpy as np

    if set(map(len, rows)) - {2 + devices}:
        raise ValueError
    each = list(chain.from_iterable([row[2:] for row in rows]))
    if set(map(type, each)) - {list} or set(map(len, each)) - {metrics}:
        raise ValueError
    try:
        times = np.array([row[1] for row in rows], dtype=float)
        values = np.array(list(chain.from_iterable(each)), dtype=float)
    except (OverflowError, TypeError) as fault:  # a number of hundreds of digits; a list, a dict
        raise ValueError from fault
    if not np.isfinite(times).all() or np.isinf(values).any():
        raise ValueError
    return times, values.reshape(len(rows), devices, metrics)


class Columns:
    """Rows of one source. Its devices and metrics may change; the columns are all it ever had."""

    def __init__(
        self, source: str, every: float, capacity: int | None = None, expected: int = _FIRST
    ) -> None:
        import numpy as np

        self.source = source
        self.metrics: tuple[str, ...] = ()
        self.devices: dict[str, Device] = {}
        self.rows = 0
        self.bad = 0  # rows that did not fit
        self.edges: Numbers = np.empty(0)  # where spans begin and end
        self._every, self._capacity, self._expected = every, capacity, expected
        self._sums: dict[str, Summing] = {}
        self._named: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
        self._times: Numbers = np.empty(0)
        self._levels: NDArray[np.int8] = np.empty(0, np.int8)
        self._values: Numbers = np.empty((0, 0, 0))

    @property
    def shape(self) -> tuple[int, int]:
        """How many devices and metrics a row has now."""
        metrics, keys = self._named
        return len(keys), len(metrics)

    @property
    def named(self) -> tuple[str, ...]:
        """The metrics of a row now."""
        return self._named[0]

    @property
    def thinned(self) -> bool:
        """Whether some rows stand for several."""
        return bool(self.rows) and bool(self._levels[: self.rows].max())

    @property
    def limit(self) -> int:
        """The most rows that are kept; without a capacity, all are."""
        if self._capacity is None:
            return sys.maxsize
        cells = max(1, len(self.devices) * len(self.metrics))
        return max(BLOCK * 4, min(self._capacity, max(_LEAST, _CELLS // cells)))

    def name(self, metrics: Iterable[str], devices: Iterable[Device]) -> None:
        """The rows that follow have these columns."""
        import numpy as np

        given = tuple(metrics)
        described = {device.key: device for device in devices}
        self._named = (given, tuple(described))
        made: list[str] = []
        for metric, pair in SUMS.items():
            # A recording that was saved after thinning brings its sums along.
            if metric in given and not set(pair) & set(given):
                made += pair
                self._sums.setdefault(
                    metric, Summing.fresh(metric, len(self.devices), longest_step(self._every))
                )
        self.metrics = tuple(dict.fromkeys((*self.metrics, *given, *made)))
        self.devices = {**self.devices, **described}
        shape = (len(self._times), len(self.devices), len(self.metrics))
        if shape != self._values.shape:
            wider = np.full(shape, np.nan)
            _, old_devices, old_metrics = self._values.shape
            wider[:, :old_devices, :old_metrics] = self._values
            self._values = wider
            for summing in self._sums.values():
                summing.widen(len(self.devices))

    def add(self, rows: list[Any]) -> None:
        """Parsed rows, in order of time. One that does not fit is left out and counted."""
        try:
            times, values = numbers(rows, *self.shape)
        except ValueError:
            if len(rows) == 1:
                self.bad += 1
            else:
                for row in rows:
                    self.add([row])
            return
        self.append(times, values)

    def append(self, times: Numbers, values: Numbers) -> None:
        """The same for numbers, in the columns that were named last."""
        import numpy as np

        metrics, keys = self._named
        before = self._times[self.rows - 1] if self.rows else -np.inf
        # A source's time never runs back; a row that says otherwise could not be placed.
        forward = times >= np.maximum.accumulate(np.append(before, times))[:-1]
        if not forward.all():
            self.bad += int((~forward).sum())
            times, values = times[forward], values[forward]
        wide = np.full((len(times), len(self.devices), len(self.metrics)), np.nan)
        places = list(self.devices)
        across = [places.index(key) for key in keys]
        down = [self.metrics.index(metric) for metric in metrics]
        wide[np.ix_(range(len(times)), across, down)] = values
        for metric, summing in self._sums.items():
            total, known = summing.take(times, wide[:, :, self.metrics.index(metric)])
            for name, made in zip(SUMS[metric], (total, known), strict=True):
                if name not in metrics:
                    wide[:, :, self.metrics.index(name)] = made
        at = 0
        while at < len(times):
            room = self._room(len(times) - at)
            upto = slice(self.rows, self.rows + room)
            self._times[upto] = times[at : at + room]
            self._values[upto] = wide[at : at + room]
            self._levels[upto] = 0
            self.rows += room
            at += room

    def make_room(self) -> None:
        """Thin if it is full; the rows beside the edges of spans stay, unless they are too many."""
        import numpy as np

        while self.rows >= self.limit:
            held = self._held()
            start, end = next_to_thin(self._levels[: self.rows], held)
            loose = np.flatnonzero(~held[start:end])
            if len(loose) < BLOCK:
                loose = np.arange(end - start)
            loose = start + loose[: len(loose) // BLOCK * BLOCK]
            counters = np.array([is_counter(metric) for metric in self.metrics], bool)
            when, what = thin(self._times[loose], self._values[loose], counters)
            stay = np.setdiff1d(np.arange(start, end), loose)
            fewer_times = np.concatenate([self._times[stay], when])
            order = np.argsort(fewer_times, kind="stable")
            fewer_times = fewer_times[order]
            fewer = np.concatenate([self._values[stay], what])[order]
            upto, rest = start + len(fewer_times), slice(end, self.rows)
            moved = slice(upto, upto + self.rows - end)
            level = int(self._levels[start]) + 1
            self._times[start:upto], self._values[start:upto] = fewer_times, fewer
            self._levels[start:upto] = min(level, 127)
            for column in (self._times, self._values, self._levels):
                column[moved] = column[rest].copy()
            self.rows = moved.stop

    def _held(self) -> NDArray[np.bool_]:
        """The rows beside the edges of spans: none if that leaves too few others in the past."""
        import numpy as np

        held = np.zeros(self.rows, bool)
        after = np.searchsorted(self._times[: self.rows], self.edges)
        beside = np.concatenate([after - 1, after])
        held[beside[(beside >= 0) & (beside < self.rows)]] = True
        if (~held[: self.rows // 2]).sum() < self.rows // 8:
            held[:] = False
        return held

    def snapshot(self) -> tuple[Numbers, Numbers]:
        """Copies of times and values, read-only."""
        times, values = self._times[: self.rows].copy(), self._values[: self.rows].copy()
        times.setflags(write=False)
        values.setflags(write=False)
        return times, values

    def _room(self, wanted: int) -> int:
        """How many rows fit now; the columns grow until they are full."""
        import numpy as np

        if self.rows >= self.limit:
            self.make_room()
        have = len(self._times)
        if self.rows == have and have < self.limit:
            size = min(self.limit, max(self._expected, 2 * have, have + wanted))
            for name in ("_times", "_levels", "_values"):
                old = getattr(self, name)
                new = np.zeros((size, *old.shape[1:]), old.dtype)
                new[:have] = old
                setattr(self, name, new)
        return min(wanted, min(len(self._times), self.limit) - self.rows)
