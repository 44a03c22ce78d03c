"""α and B from measured times: the two numbers of a link that explain them best.

The model is a program's closed form, T = messages·α + bytes·S/B. α and B are chosen so that the
squares of log(model/measured) are smallest: a microsecond matters at 1 kB as ten milliseconds do at
16 MB, and twice too much counts as half too little. (Plain relative errors would not: a time that
the machine disturbed can be off by 100 % at most, and the line would follow the lowest dots.)
No measurement here can tell adding up from sending, so the time for adding is inside B.

Two numbers explain no machine completely. How far the model is off is part of the answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from labkit import plain
from labkit.collectives.bench.bandwidth import bus_factor
from labkit.collectives.formulas import FORMULAS, terms
from labkit.collectives.records import Array
from labkit.kinds import Kind, LabError, bytes_text, modelled, percent_text, seconds_text

__all__ = ["Fit", "Point", "fit", "least_squares"]

_ITERATIONS = 200


@dataclass(frozen=True)
class Point:
    """One measured median beside what the model says: both in seconds."""

    contender: str
    nbytes: int
    measured: float
    modelled: float

    @property
    def residual(self) -> float:
        """How much the model is off: 0.1 when it says 10 % too much."""
        return self.modelled / self.measured - 1


@plain.stored
@dataclass(frozen=True, repr=False)
class Fit:
    """A latency in seconds and a bandwidth in bytes per second, with all that they must explain."""

    contenders: tuple[str, ...]
    collective: str
    latency: float
    bandwidth: float
    points: tuple[Point, ...]
    formula: str
    measured: Kind

    @property
    def kind(self) -> Kind:
        """A model, whose two numbers are fitted to a measurement."""
        return modelled(f"{self.formula}, fitted to medians {self.measured}")

    @property
    def typical(self) -> float:
        """Half of the points are closer to the model than this share."""
        return median(abs(point.residual) for point in self.points)

    @property
    def worst(self) -> Point:
        """The point that the model misses most."""
        return max(self.points, key=lambda point: abs(math.log1p(point.residual)))

    def seconds(self, contender: str, nbytes: float, ranks: int) -> float:
        """What the model says about a size, measured or not; also for other numbers of ranks."""
        messages, share = _shares(contender, self.collective, ranks)
        return messages * self.latency + share * nbytes / self.bandwidth

    def __repr__(self) -> str:
        return f"Fit({', '.join(self.contenders)}: {self._numbers()})"

    def __str__(self) -> str:
        worst = self.worst
        off = percent_text(abs(worst.residual))
        kind = str(self.kind)
        return (
            f"{', '.join(self.contenders)}: {self._numbers()}. Half of the medians are within "
            f"{percent_text(self.typical)} of the model; it misses {worst.contender} at "
            f"{bytes_text(worst.nbytes)} most, by {off} too "
            f"{'little' if worst.residual < 0 else 'much'}. {kind[0].upper()}{kind[1:]}."
        )

    @property
    def bandwidth_text(self) -> str:
        """B with its unit; where time does not grow with size, nothing can be said about it."""
        return f"{bytes_text(self.bandwidth)}/s" if math.isfinite(self.bandwidth) else "not seen"

    def _numbers(self) -> str:
        return f"α = {seconds_text(self.latency)}, B = {self.bandwidth_text}"


def fit(
    collective: str, ranks: int, medians: Sequence[tuple[str, int, float]], measured: Kind
) -> Fit:
    """One link for all medians, which are (contender, bytes, seconds)."""
    if len({nbytes for _, nbytes, _ in medians}) < 2:
        raise LabError(
            "A fit of latency and bandwidth needs at least two sizes. "
            'Measure several, such as sizes="1k:16M".'
        )
    shares = [_shares(name, collective, ranks) for name, _, _ in medians]
    rows = [
        (messages, share * nbytes, seconds)
        for (messages, share), (_, nbytes, seconds) in zip(shares, medians, strict=True)
    ]
    latency, per_byte = least_squares(rows)
    points = tuple(
        Point(name, nbytes, seconds, messages * latency + sent * per_byte)
        for (name, nbytes, _), (messages, sent, seconds) in zip(medians, rows, strict=True)
    )
    names = tuple(dict.fromkeys(name for name, _, _ in medians))
    bandwidth = 1 / per_byte if per_byte > 0 else math.inf
    return Fit(names, collective, latency, bandwidth, points, _formula(names), measured)


def least_squares(rows: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """Latency and seconds per byte from (messages, bytes, seconds): neither below zero.

    >>> least_squares([(2, 1000, 2e-6 + 1e-6), (2, 100_000, 2e-6 + 1e-4)])
    (1e-06, 1e-09)
    """
    import numpy as np

    data = np.asarray(rows, dtype=float)
    parts, times = data[:, :2], data[:, 2]
    weights = 1 / times**2
    found = np.zeros(2)
    for _ in range(_ITERATIONS):
        before, found = found, _weighted(parts, times, weights)
        if np.allclose(before, found, rtol=1e-12, atol=0):
            break
        # With these weights the least squares of the times are those of the logarithms.
        model = parts @ found
        off = np.log(model / times)
        close = np.abs(off) < 1e-6
        weights = np.where(close, 1, off) / np.where(close, model, model - times) / model
    return float(f"{found[0]:.10g}"), float(f"{found[1]:.10g}")


def _weighted(parts: Array, times: Array, weights: Array) -> Array:
    """Weighted least squares of two numbers that are not negative."""
    import numpy as np

    root = np.sqrt(weights)[:, None]
    scaled, goal = parts * root, times * root[:, 0]
    # Columns of like size, or the one with the bytes would drown the other in rounding.
    unit = np.where(scaled.any(axis=0), np.abs(scaled).max(axis=0), 1.0)
    both: Array = np.linalg.lstsq(scaled / unit, goal, rcond=None)[0] / unit
    if (both >= 0).all():
        return both
    # There are two only: if one would be negative, it is zero in the best fit.
    candidates = [np.zeros(2), np.zeros(2)]
    for at, candidate in enumerate(candidates):
        candidate[at] = scaled[:, at] @ goal / (scaled[:, at] @ scaled[:, at])
    return min(candidates, key=lambda one: float(np.square(scaled @ one - goal).sum()))


def _shares(contender: str, collective: str, ranks: int) -> tuple[float, float]:
    """How often α and S/B are paid; for a library, whose algorithm is unknown: 1, the bus share."""
    if contender not in FORMULAS:
        return 1.0, bus_factor(collective, ranks)
    found = terms(contender, ranks)
    return found.messages, found.bytes


def _formula(names: Sequence[str]) -> str:
    if len(names) > 1:
        return (
            "T = messages·α + bytes·S/B of each closed form, one link for all, adding up inside B"
        )
    if names[0] in FORMULAS:
        return "T = messages·α + bytes·S/B of its closed form, adding up inside B"
    return "T = α + bus factor·S/B, α being the whole call's"
