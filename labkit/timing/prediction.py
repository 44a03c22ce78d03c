"""Predict first: a guess is written down before the measurement, and both are shown after it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from types import EllipsisType
from typing import Any

from labkit.arguments import number
from labkit.kinds import LabError
from labkit.timing.estimate import SECONDS, Estimate, quantity_text, span_text
from labkit.timing.judge import Verdict

__all__ = ["Outcome", "Prediction", "predict"]


@dataclass(frozen=True)
class Prediction:
    """What you expect, before you measure; `guess` is None until you have written one."""

    what: str
    guess: float | None
    unit: str = ""

    def __str__(self) -> str:
        if self.guess is None:
            return f"Not predicted yet: {self.what}. Put your guess in place of `...`."
        return f"You guess {quantity_text(self.guess, self.unit)} for the {self.what}."

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return _paragraph(str(self))

    def against(self, found: Any, kind: str | None = None) -> Outcome:
        """Your guess beside the result.

        `found` is a number, (value, low, high), or an estimate or verdict of a comparison. A whole
        number was counted. Of any other number you can say its kind: "counted", "modelled".
        """
        if isinstance(found, Verdict):
            found = found.estimate
        # An estimate, and a modelled time, know their kind and unit; a plain number was measured.
        plain_verb = "counted" if isinstance(found, int) else "measured"
        verb = kind or str(getattr(getattr(found, "kind", None), "name", plain_verb))
        scale = _scale(getattr(found, "unit", self.unit), self.unit)
        if isinstance(found, Estimate):
            found = (found.value, found.low, found.high) if found.confidence else found.value
        ends = found if isinstance(found, tuple) else (found,)
        try:
            numbers = [scale * float(end) for end in ends]
        except (TypeError, ValueError):
            numbers = []
        if len(numbers) not in (1, 3):
            raise LabError(
                "against() needs a number, (value, low, high), or an estimate such as "
                f"comparison.speedup(name), got {found!r}."
            )
        low, high = numbers[1:] if len(numbers) == 3 else (None, None)
        return Outcome(self.what, self.guess, self.unit, numbers[0], low, high, verb)


@dataclass(frozen=True)
class Outcome:
    """A guess, the result, and how far apart they are."""

    what: str
    guess: float | None
    unit: str
    value: float
    low: float | None
    high: float | None
    verb: str

    @property
    def factor(self) -> float:
        """How many times too high or too low the guess was; 1 is a perfect guess."""
        if self.guess is None or not (math.isfinite(self.value) and self.value > 0):
            return math.nan
        return max(self.guess / self.value, self.value / self.guess)

    @property
    def inside(self) -> bool | None:
        """Whether the guess lies in the interval; None without one of them."""
        if self.guess is None or self.low is None or self.high is None:
            return None
        return self.low <= self.guess <= self.high

    def __str__(self) -> str:
        found = f"nothing was {self.verb}"
        if math.isfinite(self.value):
            found = f"{self.verb} {quantity_text(self.value, self.unit)}"
            if self.low is not None and self.high is not None:
                found += f" ({span_text(self.low, self.high, self.unit)})"
        if self.guess is None:
            return f"{found[0].upper()}{found[1:]}. Write your guess first, then run again."
        text = f"You guessed {quantity_text(self.guess, self.unit)}; {found}"
        if self.inside:
            return f"{text}: your guess lies inside the interval."
        if math.isnan(self.factor):
            return f"{text}."
        digits = ".2f" if self.factor < 1.95 else ".2g" if self.factor < 10 else ".0f"
        text += f": off by a factor of {self.factor:{digits}}"
        if self.inside is None:
            return f"{text}."
        return f"{text}, {'above' if self.guess > self.value else 'below'} the interval."

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return _paragraph(f"{self.what[:1].upper()}{self.what[1:]}. {self}")


def predict(what: str, guess: float | EllipsisType = ..., *, unit: str = "") -> Prediction:
    """Write down what you expect; `...` stands for "not yet".

    >>> mine = predict("speed-up of 2 replicas", 1.8, unit="×")
    >>> print(mine.against((0.84, 0.80, 0.88)))
    You guessed 1.80×; measured 0.84× (0.80–0.88×): off by a factor of 2.1, above the interval.
    """
    return Prediction(what, None if guess is ... else number("guess", guess, above=0), unit)


def _paragraph(text: str) -> dict[str, str]:
    # A paragraph breaks between words; JupyterLab breaks plain text anywhere.
    return {"text/plain": text, "text/html": f"<p>{escape(text)}</p>"}


def _scale(found: str, guessed: str) -> float:
    """What to multiply a result with to compare it with a guess in another unit."""
    if found in SECONDS and guessed in SECONDS:
        return SECONDS[found] / SECONDS[guessed]
    if found == "share" and guessed == "%":
        return 100.0
    if found != guessed and guessed:
        raise LabError(
            f"Your guess is in {guessed!r} and the result in {found!r}. "
            f"Predict again with unit={found!r}."
        )
    return 1.0
