"""Predict first: a guess is written down before the measurement, and both are shown after it."""

from __future__ import annotations

import math
import sys
import time
from dataclasses import dataclass, field
from html import escape
from numbers import Integral
from types import EllipsisType
from typing import Any

from labkit.arguments import number
from labkit.kinds import LabError
from labkit.timing import chain, guesses
from labkit.timing.estimate import SECONDS, Estimate, quantity_text, span_text


@dataclass(frozen=True)
class Prediction:
    """What you expect, before you measure; `guess` is None until you have written one."""

    what: str
    guess: float | None
    unit: str = ""
    at: float = field(default=0.0, compare=False, repr=False)
    """When it was written down, in seconds as time.time() counts them; 0 outside of notebooks."""

    def __str__(self) -> str:
        if self.guess is None:
            return f"Not predicted yet: {self.what}. Put your guess in place of `...`."
        return f"You guess {quantity_text(self.guess, self.unit)} for the {self.what}."

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return _paragraph(str(self))

    def freeze(self) -> float:
        """Say that the measurement begins: a guess that changes after this is refused; the time."""
        return time.time() if not self.at else chain.note("measured", self.what, self.guess or 0.0)

    def fault(self) -> str:
        """Why this is no prediction; "" if it is one."""
        if not self.at:
            return ""  # not of a notebook
        first = chain.when_measured(self.what)
        if first is None:
            return "The prediction was not frozen before the measurement: run guess.freeze()."
        if first != self.guess:
            return (
                f"The measurement began with the guess {first:g}; {self.guess:g} was written after "
                "it. Report the first one: a wrong prediction loses nothing."
            )
        return ""

    def against(self, found: Any, kind: str | None = None) -> Outcome:
        """Your guess beside the result: a number, or an estimate such as a speed-up.

        A whole number was counted. Of any other you can say its kind: "counted", "modelled".
        """
        # An estimate, and a modelled time, know their kind and unit; a plain number was measured.
        plain_verb = "counted" if isinstance(found, Integral) else "measured"
        verb = kind or str(getattr(getattr(found, "kind", None), "name", plain_verb))
        scale = _scale(getattr(found, "unit", self.unit), self.unit)
        interval = None
        if isinstance(found, Estimate):
            interval = (scale * found.low, scale * found.high) if found.confidence else None
            found = found.value
        try:
            outcome = Outcome(self, scale * float(found), interval, verb)
        except (TypeError, ValueError):
            raise LabError(
                "against() needs a number, or an estimate such as comparison.speedup(name), "
                f"got {found!r}."
            ) from None
        guesses.send(self.what, self.unit, result=outcome.value, verb=verb)
        return outcome


@dataclass(frozen=True)
class Outcome:
    """A guess, the result, and how far apart they are."""

    prediction: Prediction
    value: float
    interval: tuple[float, float] | None
    verb: str

    @property
    def factor(self) -> float:
        """How many times too high or too low the guess was; 1 is a perfect guess."""
        guess = self.prediction.guess
        if guess is None or not (math.isfinite(self.value) and self.value > 0):
            return math.nan
        return max(guess / self.value, self.value / guess)

    def __str__(self) -> str:
        guess, unit = self.prediction.guess, self.prediction.unit
        if guess is None:  # without the result, which would spoil the guess
            return "Write your guess first, then run again."
        found = f"nothing was {self.verb}"
        if math.isfinite(self.value):
            found = f"{self.verb} {quantity_text(self.value, unit)}"
            if self.interval:
                found += f" ({span_text(*self.interval, unit)})"
        text = f"You guessed {quantity_text(guess, unit)}; {found}"
        if self.interval and self.interval[0] <= guess <= self.interval[1]:
            return f"{text}: your guess lies inside the interval."
        if math.isnan(self.factor):
            return f"{text}."
        digits = ".2f" if self.factor < 1.95 else ".2g" if self.factor < 10 else ".0f"
        side = f", {'above' if guess > self.value else 'below'} the interval"
        return f"{text}: off by a factor of {self.factor:{digits}}{side if self.interval else ''}."

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        what = self.prediction.what
        return _paragraph(f"{what[:1].upper()}{what[1:]}. {self}")


def predict(what: str, guess: float | EllipsisType = ..., *, unit: str = "") -> Prediction:
    """Write down what you expect; `...` stands for "not yet".

    >>> mine = predict("speed-up of 2 replicas", 1.8, unit="×")
    >>> print(mine.against(0.84))
    You guessed 1.80×; measured 0.84×: off by a factor of 2.1.
    """
    mine = None if guess is ... else number("guess", guess, above=0)
    guesses.send(what, unit, guess=mine)
    ipython = sys.modules.get("IPython")
    if mine is None or ipython is None or ipython.get_ipython() is None:
        return Prediction(what, mine, unit)
    return Prediction(what, mine, unit, chain.note("predicted", what, mine))


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
