"""Sums over time that are made on arrival, so that they stay exact when old samples are thinned.

From utilisation: `busy` (seconds at full use that would be as much) and `watched` (seconds for
which utilisation was known). From power: `joules`, and `powered` likewise. The mean between two
moments is the growth of the one over the growth of the other: what was not seen counts neither as
busy nor as idle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

__all__ = ["SUMS", "Summing", "longest_step"]

# Which readings are summed, and into which counters: the sum, and the time that it covers.
SUMS = {"utilisation": ("busy", "watched"), "power": ("joules", "powered")}


def longest_step(every: float) -> float:
    """Two readings further apart say nothing about the time between them."""
    return max(3 * every, 1.0)


@dataclass
class Summing:
    """Goes on from block to block of rows; one column for each device."""

    metric: str
    longest: float
    at: Numbers  # time of the last reading, -inf before the first
    last: Numbers
    total: Numbers
    known: Numbers

    @classmethod
    def fresh(cls, metric: str, devices: int, longest: float) -> Summing:
        """Nothing seen yet."""
        import numpy as np

        zero = np.zeros(devices)
        return cls(metric, longest, zero - np.inf, zero.copy(), zero.copy(), zero.copy())

    def widen(self, devices: int) -> None:
        """Room for devices that came later."""
        import numpy as np

        more = np.zeros(devices - len(self.at))
        self.at = np.append(self.at, more - np.inf)
        self.last, self.total, self.known = (
            np.append(old, more) for old in (self.last, self.total, self.known)
        )

    def take(self, times: Numbers, readings: Numbers) -> tuple[Numbers, Numbers]:
        """Both counters at these rows; none where there is no reading."""
        import numpy as np

        missing = np.isnan(readings)
        when = np.vstack([self.at, np.broadcast_to(times[:, None], readings.shape)])
        what = np.vstack([self.last, readings])
        # For each row and device, the row of its reading before this one; row 0 is carried over.
        rows = np.arange(len(what))[:, None]
        seen = np.where(np.vstack([np.zeros_like(self.last, bool), missing]), 0, rows)
        latest = np.maximum.accumulate(seen, axis=0)
        before = latest[:-1]
        step = times[:, None] - np.take_along_axis(when, before, 0)
        step = np.where(missing | (step > self.longest), 0.0, np.maximum(step, 0.0))
        now = np.where(missing, 0.0, readings)
        if self.metric == "utilisation":
            grown = step * now / 100  # a gauge tells of the time before it
        else:
            grown = step * (now + np.take_along_axis(what, before, 0)) / 2
        total = np.cumsum(grown, axis=0) + self.total
        known = np.cumsum(step, axis=0) + self.known
        if len(times):
            self.total, self.known = total[-1].copy(), known[-1].copy()
            self.at = np.take_along_axis(when, latest[-1:], 0)[0]
            self.last = np.take_along_axis(what, latest[-1:], 0)[0]
        return np.where(missing, np.nan, total), np.where(missing, np.nan, known)
