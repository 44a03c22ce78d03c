"""Between which ends the difference of two programs lies.

In every round each program runs once, in an order drawn by a fair coin. If the two are equal, the
coin alone decides the sign of the round's difference, whatever the machine did meanwhile. So every
pattern of signs is equally likely, and a test that adds up the signs has an exact level.

>>> found = shift([10, 12, 9, 11, 13, 10, 11, 12, 10, 11, 900], 0.95)
>>> round(found.value, 3), round(found.low, 3), round(found.high, 3)
(11.0, 10.0, 12.5)
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

# Up to here the distribution is counted; beyond it the normal curve is right to 0.1 %.
_EXACT = 150


@dataclass(frozen=True)
class Interval:
    """A value between two ends, and how often such an interval holds the true value."""

    value: float
    low: float
    high: float
    confidence: float


def shift(differences: Sequence[float], confidence: float) -> Interval:
    """Returns the value around which paired differences lie symmetrically.

    This is Wilcoxon's signed-rank interval with one change: ranks stop growing at the middle
    (`weights`), so that a call which the operating system interrupted counts like any large
    difference. It finds a 2 % difference on a busy machine more often (benchmarks/timing.py).

    The interval holds every value that the test does not reject. With fewer than
    `least_rounds(confidence)` differences no such interval exists. Then the interval is their
    whole span, and `confidence` is what that span reaches.
    """
    data = [float(difference) for difference in differences]
    count = len(data)
    if count == 0 or not all(map(math.isfinite, data)):
        return Interval(math.nan, math.nan, math.nan, 0.0)
    turned = [-difference for difference in data]
    score = weights(count)
    value = (_crossing(data, score, sum(score) / 2) - _crossing(turned, score, sum(score) / 2)) / 2
    if count < least_rounds(confidence):
        return Interval(value, min(data), max(data), 1 - 2.0 ** (1 - count))
    cut = _critical(count, confidence)
    low, high = _crossing(data, score, cut), -_crossing(turned, score, cut)
    return Interval(value, min(low, value), max(high, value), confidence)


def least_rounds(confidence: float) -> int:
    """Returns the least number of differences that have an interval of this confidence.

    If all have one sign, that is 2 of 2ⁿ patterns, and this share must be small enough.

    >>> least_rounds(0.95), least_rounds(0.98), least_rounds(1 - 1 / 8)
    (6, 7, 4)
    """
    return math.ceil(1 - math.log2(1 - confidence))


def weights(count: int) -> tuple[int, ...]:
    """Returns the weights of the smallest, second smallest, … of `count` differences.

    >>> weights(6)
    (1, 2, 3, 3, 3, 3)
    """
    cap = (count + 1) // 2
    return tuple(min(rank, cap) for rank in range(1, count + 1))


def _crossing(data: Sequence[float], score: Sequence[int], level: float) -> float:
    """The largest shift with at most `level` of the weighted signs below it, by bisection."""
    low, high = min(data), max(data)
    for _ in range(45):
        middle = (low + high) / 2
        ranked = sorted((value - middle for value in data), key=abs)
        if sum(weight for weight, value in zip(score, ranked, strict=True) if value < 0) <= level:
            low = middle
        else:
            high = middle
    return low


@functools.cache
def _critical(count: int, confidence: float) -> float:
    """Returns the largest sum of weights that is still too small to be chance."""
    import numpy as np

    tail, score = (1 - confidence) / 2 + 1e-12, weights(count)
    if count > _EXACT:
        spread = math.sqrt(sum(weight * weight for weight in score)) / 2
        return math.floor(sum(score) / 2 + NormalDist().inv_cdf(tail) * spread - 0.5)
    chance = np.zeros(sum(score) + 1)  # of every sum, when each sign is tossed
    chance[0] = 1.0
    for weight in score:
        chance[weight:] = (chance[weight:] + chance[:-weight]) / 2
        chance[:weight] /= 2
    return float(np.flatnonzero(np.cumsum(chance) <= tail)[-1])
