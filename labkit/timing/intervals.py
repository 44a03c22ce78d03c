"""Intervals that assume no bell curve, and no steady machine.

>>> found = shift([10, 12, 9, 11, 13, 10, 11, 12, 10, 11, 900], 0.95)
>>> round(found.value, 3), round(found.low, 3), round(found.high, 3)
(11.0, 10.0, 12.5)

Why this one. In every round each program runs once, in an order drawn by a fair coin. If two
programs are equal, the coin alone decides the sign of the round's difference: whatever the
machine did meanwhile (drift, bursts, rounds that resemble their neighbours), each pattern of
signs is equally likely. So the signs are tested, weighted by the rank of the size, and the
test's level is exact. The interval holds every ratio that the test would not reject.

The weight stops growing at the middle rank: a call that the operating system interrupted counts
like any large difference, however large. That finds a 2 % difference more often than plain
signed ranks or a t-test do (benchmarks/timing.py).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

__all__ = ["Interval", "least_rounds", "median", "shift", "weights"]

# Up to here the distribution is counted out; beyond it the normal curve is right to 0.1 %.
_EXACT = 150


@dataclass(frozen=True)
class Interval:
    """A value, and between which two others it is believed to lie, and how strongly."""

    value: float
    low: float
    high: float
    confidence: float


def shift(values: Sequence[float], confidence: float) -> Interval:
    """Around which value the `values` lie symmetrically (signed ranks, capped at the middle).

    Too few values for the confidence asked: the interval is their whole span, with the
    confidence that this has.
    """
    import numpy as np

    data = np.asarray(values, dtype=float)
    count = len(data)
    if count == 0 or not np.isfinite(data).all():
        return Interval(math.nan, math.nan, math.nan, 0.0)
    score = np.asarray(weights(count), dtype=float)
    middle = score.sum() / 2
    value = (_crossing(data, score, middle) - _crossing(-data, score, middle)) / 2
    cut = _critical(count, confidence)
    if cut is None:
        return Interval(value, float(data.min()), float(data.max()), _span_confidence(count))
    low, high = _crossing(data, score, cut), -_crossing(-data, score, cut)
    return Interval(value, min(low, value), max(high, value), confidence)


def median(values: Sequence[float], confidence: float) -> Interval:
    """The median, between two of the values themselves (order statistics)."""
    import numpy as np

    data = np.sort(np.asarray(values, dtype=float))
    count = len(data)
    if count == 0 or not np.isfinite(data).all():
        return Interval(math.nan, math.nan, math.nan, 0.0)
    value, depth = float(np.median(data)), _depth(count, confidence)
    if depth == 0:
        return Interval(value, float(data[0]), float(data[-1]), _span_confidence(count))
    return Interval(value, float(data[depth - 1]), float(data[-depth]), confidence)


def least_rounds(confidence: float) -> int:
    """With how many rounds an interval of this confidence begins to exist.

    >>> least_rounds(0.95), least_rounds(0.98)
    (6, 7)
    """
    return math.ceil(1 - math.log2(1 - confidence) - 1e-9)


def weights(count: int) -> tuple[int, ...]:
    """What the smallest, second smallest, … of `count` differences counts.

    >>> weights(6)
    (1, 2, 3, 3, 3, 3)
    """
    cap = (count + 1) // 2
    return tuple(min(rank, cap) for rank in range(1, count + 1))


def _span_confidence(count: int) -> float:
    return 1 - 2.0 ** (1 - count)


def _crossing(data: Any, score: Any, level: float) -> float:
    """Up to which shift the weighted signs below it count no more than `level`."""
    import numpy as np

    low, high = float(data.min()), float(data.max())
    # Halving 60 times leaves less than the rounding of a float.
    for _ in range(60):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        moved = data - middle
        moved = moved[np.argsort(np.abs(moved))]
        if score[moved < 0].sum() <= level:
            low = middle
        else:
            high = middle
    return low


@functools.cache
def _critical(count: int, confidence: float) -> float | None:
    """The largest sum of weights that is still too small to be chance; None if none is."""
    import numpy as np

    tail, score = (1 - confidence) / 2 + 1e-12, weights(count)
    if count > _EXACT:
        spread = math.sqrt(sum(weight * weight for weight in score)) / 2
        return math.floor(sum(score) / 2 + NormalDist().inv_cdf(tail) * spread - 0.5)
    chance = np.zeros(sum(score) + 1)
    chance[0] = 1.0
    for weight in score:
        chance[weight:] = (chance[weight:] + chance[:-weight]) / 2
        chance[:weight] /= 2
    possible = np.flatnonzero(np.cumsum(chance) <= tail)
    return float(possible[-1]) if len(possible) else None


@functools.cache
def _depth(count: int, confidence: float) -> int:
    """How many values to leave out at either end; 0 if even the outermost are needed."""
    tail = (1 - confidence) / 2 + 1e-12
    if count > 1000:
        return max(0, math.floor(count / 2 + NormalDist().inv_cdf(tail) * math.sqrt(count) / 2))
    below, depth = 0, 0
    while (below := below + math.comb(count, depth)) / 2**count <= tail:
        depth += 1
    return depth
