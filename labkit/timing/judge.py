"""Faster, slower, the same, or cannot tell: statistics only, no clock and no printing.

>>> print(judge("b", "a", [-0.17, -0.18, -0.16, -0.17, -0.19, -0.17, -0.16, -0.18]))
b is slower than a: 0.844× (0.831–0.852×, 98 %)
>>> print(judge("b", "a", [-0.17, -0.18, -0.16]))  # doctest: +ELLIPSIS
cannot tell whether b differs from a: 0.844× (0.835–0.852×, 75 %); 3 rounds are too few, ...
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

from labkit import plain
from labkit.kinds import Kind, measured
from labkit.timing.estimate import Estimate
from labkit.timing.intervals import Interval, least_rounds, shift

__all__ = ["CONFIDENCE", "SAME_WITHIN", "Verdict", "Word", "judge", "rounds_needed"]

# 98 %: a claim of "faster" is wrong once in a hundred. A lecture makes a dozen comparisons;
# at 95 % its students would see a false one every other week.
CONFIDENCE = 0.98
SAME_WITHIN = 0.01
# How sure one should be that the rounds proposed will settle it.
_POWER = 0.8
_MOST = 1_000_000

Word = Literal["faster", "slower", "same", "cannot tell"]


@plain.stored
@dataclass(frozen=True)
class Verdict:
    """What can be said about one program against another, and how surely."""

    name: str
    over: str
    word: Word
    estimate: Estimate
    rounds: int
    same_within: float
    more_rounds: int | None = None
    reason: str = ""

    def __str__(self) -> str:
        if self.word == "same":
            band = f"{100 * self.same_within:g} %"
            return f"{self.name} is the same as {self.over} within {band}: {self.estimate}"
        if self.word == "cannot tell":
            text = f"cannot tell whether {self.name} differs from {self.over}: {self.estimate}"
            return f"{text}; {self.reason}" if self.reason else text
        return f"{self.name} is {self.word} than {self.over}: {self.estimate}"


def judge(
    name: str,
    over: str,
    log_ratios: Sequence[float],
    *,
    same_within: float = SAME_WITHIN,
    confidence: float = CONFIDENCE,
    kind: Kind | None = None,
    doubt: str = "",
) -> Verdict:
    """The verdict on `name` against `over` from one logarithm of the speed-up per round.

    The interval inside ± `same_within`: the same. The interval beyond 1: faster or slower.
    Otherwise, and whenever there is a doubt about the data: cannot tell.
    """
    found = shift(log_ratios, confidence)
    value, low, high = (math.exp(end) for end in (found.value, found.low, found.high))
    kind = kind or measured("this machine")
    estimate = Estimate(value, low, high, "×", found.confidence, kind)
    rounds, band = len(log_ratios), math.log1p(same_within)
    word: Word = "cannot tell"
    more: int | None = None
    if not math.isfinite(found.value):
        reason = "a sample is not a positive number of seconds" if rounds else "nothing was timed"
    elif doubt:
        reason = doubt
    elif rounds < (least := least_rounds(confidence)):
        more = max(least, rounds_needed(found, rounds, same_within, confidence)) - rounds
        few = "one round is" if rounds == 1 else f"{rounds} rounds are"
        reason = f"{few} too few, {_more_text(more, rounds)}"
    elif -band < found.low and found.high < band:
        word, reason = "same", ""
    elif found.low > 0 or found.high < 0:
        word, reason = ("faster" if found.low > 0 else "slower"), ""
    else:
        more = rounds_needed(found, rounds, same_within, confidence) - rounds
        reason = _more_text(more, rounds)
    return Verdict(name, over, word, estimate, rounds, same_within, more, reason)


def rounds_needed(found: Interval, rounds: int, same_within: float, confidence: float) -> int:
    """How many rounds in all would give another verdict than "cannot tell", four times in five.

    The interval shrinks with the root of the rounds; where its middle will lie is as uncertain
    as it is now plus as it will be then. Enough rounds are those after which it clears 1 or fits
    into the band, with a probability of 80 %.
    """
    if found.confidence <= 0:
        return least_rounds(confidence)
    normal, band = NormalDist(), math.log1p(same_within)
    # The standard error now, read off the interval, and wider the fewer rounds it was read from.
    error = (found.high - found.low) / 2 / normal.inv_cdf((1 + found.confidence) / 2)
    error *= 1 + 1.5 / rounds
    reach = normal.inv_cdf((1 + confidence) / 2)

    def settled(count: int) -> float:
        half = reach * error * math.sqrt(rounds / count)
        if 2 * half <= band:
            return 1.0
        place = NormalDist(found.value, max(error * math.sqrt(1 + rounds / count), 1e-300))
        differs = 1 - place.cdf(half) + place.cdf(-half)
        fits = max(0.0, band - half)
        return differs + place.cdf(fits) - place.cdf(-fits)

    few, enough = rounds, rounds + 1
    while settled(enough) < _POWER and enough < _MOST:
        few, enough = enough, enough * 2
    while enough - few > 1:
        half_way = (few + enough) // 2
        if settled(half_way) < _POWER:
            few = half_way
        else:
            enough = half_way
    return min(_round_up(enough), _MOST)


def _round_up(count: int) -> int:
    """Two digits are as much as this estimate knows: 1234 becomes 1300."""
    step = int(10 ** max(0, len(str(count)) - 2))
    return -(-count // step) * step


def _more_text(more: int, rounds: int) -> str:
    if more + rounds >= _MOST:
        return "the timings are too uneven for any number of rounds: quieten the machine"
    return f"about {more:,} more rounds would tell: ask for rounds={more + rounds}"
