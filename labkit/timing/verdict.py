"""Faster, slower, the same, or cannot tell: statistics only, no clock.

The error rate: among comparisons of two *equal* programs, at most 5 % are called "faster" or
"slower" (1 - confidence). It is not the share of wrong claims among all claims: that depends on
how many of the programs that you compare are equal.

>>> print(judge("b", "a", [-0.17, -0.18, -0.16, -0.17, -0.19, -0.17, -0.16, -0.18]))
b is slower than a: 0.844× (95 % interval: 0.835–0.848×)
>>> print(judge("b", "a", [-0.17, -0.18, -0.16]))  # doctest: +ELLIPSIS
cannot tell whether b differs from a by more than 0.5 %: ...; 3 rounds are too few: ...
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from labkit.arguments import number
from labkit.kinds import Kind, measured
from labkit.timing.estimate import Estimate, percent
from labkit.timing.intervals import Interval, least_rounds, shift

# With both, 20 rounds find a difference of 2 % in 95 of 100 comparisons (benchmarks/timing.py).
CONFIDENCE = 0.95
SAME_WITHIN = 0.005

Word = Literal["faster", "slower", "same", "cannot tell"]


@dataclass(frozen=True)
class Verdict:
    """What can be said about one program against another."""

    name: str
    over: str
    word: Word
    estimate: Estimate
    reason: str = ""

    def __str__(self) -> str:
        band = percent(SAME_WITHIN)
        if self.word == "cannot tell":
            return (
                f"cannot tell whether {self.name} differs from {self.over} by more than "
                f"{band}: {self.estimate}; {self.reason}"
            )
        if self.word == "same":
            return f"{self.name} is the same as {self.over} within {band}: {self.estimate}"
        return f"{self.name} is {self.word} than {self.over}: {self.estimate}"


def judge(
    name: str, over: str, log_ratios: Sequence[float], *, confidence: float = CONFIDENCE,
    kind: Kind | None = None,
) -> Verdict:  # fmt: skip
    """Returns the verdict on `name` against `over` from one logarithm of the speed-up per round.

    "same" when the whole interval of the ratio lies within the band 1 ± 0.5 %, "faster"
    or "slower" when the whole interval lies beyond it, and otherwise "cannot tell".
    """
    confidence = number("confidence", confidence, above=0, below=1)
    band = math.log1p(SAME_WITHIN)
    found = shift(log_ratios, confidence)
    value, low, high = (math.exp(end) for end in (found.value, found.low, found.high))
    kind = kind or measured("this machine")
    estimate = Estimate(value, low, high, "×", found.confidence, kind)
    rounds = len(log_ratios)
    word: Word = "cannot tell"
    reason = ""
    if math.isnan(found.value):
        reason = "a sample is not a positive number of seconds" if rounds else "nothing was timed"
    elif rounds < (least := least_rounds(confidence)):
        few = "one round is" if rounds == 1 else f"{rounds} rounds are"
        reason = f"{few} too few: a {percent(confidence)} interval needs {least}"
    elif -band < found.low and found.high < band:
        word = "same"
    elif found.low > band:
        word = "faster"
    elif found.high < -band:
        word = "slower"
    else:
        reason = _rounds_text(found, rounds, band)
    return Verdict(name, over, word, estimate, reason)


def _rounds_text(found: Interval, rounds: int, band: float) -> str:
    """Returns how many rounds would tell, since an interval shrinks with their square root."""
    half = (found.high - found.low) / 2
    distance = abs(abs(found.value) - band)  # of the value from the nearer end of the band
    # With as many as make half = distance it would be a coin toss; twice as many tell mostly.
    if 2 * rounds * half**2 >= 1000 * distance**2:
        return "it would take more than 1,000 rounds"
    needed = max(rounds + 1, math.ceil(2 * rounds * (half / distance) ** 2))
    return f"about {needed} rounds would tell, if the difference stays as it is"
