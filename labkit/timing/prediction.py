"""Predict first: a guess is written down before the measurement, and both are shown after it."""

from __future__ import annotations

import math
import sys
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from html import escape
from numbers import Integral
from typing import Any

from labkit.arguments import number
from labkit.kinds import LabError
from labkit.timing import chain, guesses
from labkit.timing.estimate import SECONDS, Estimate, quantity_text, span_text

# From where to where the slider goes; a wide range is one of factors.
RANGES = {"%": (0.0, 100.0), "×": (0.1, 100.0)}
RANGE = (1.0, 10_000.0)
_asked: dict[str, Prediction] = {}  # of this kernel, by what was asked


@dataclass
class Prediction:
    """What you expect, before you measure; `guess` is None until there is one."""

    what: str
    guess: float | None
    unit: str = ""
    at: float = field(default=0.0, compare=False, repr=False)
    """When it was written down, in seconds as time.time() counts them; 0 outside of notebooks."""
    outcome: PredictionOutcome | None = field(default=None, compare=False, repr=False)
    """Of the last measurement."""

    def __str__(self) -> str:
        if self.guess is None:
            return f"Your guess first: {self.what}{f' ({self.unit})' if self.unit else ''}."
        return f"You guess {quantity_text(self.guess, self.unit)} for the {self.what}."

    def write(self, guess: float) -> None:
        """Write down the guess; a class that this kernel has joined gets the number, too."""
        self.guess = guess
        if "IPython" in sys.modules and sys.modules["IPython"].get_ipython() is not None:
            self.at = chain.note("predicted", self.what, guess)
        guesses.send(self.what, self.unit, guess=guess)

    def freeze(self) -> float:
        """Note that the measurement begins: later changes are refused. Returns the time."""
        return time.time() if not self.at else chain.note("measured", self.what, self.guess or 0.0)

    def fault(self) -> str:
        """Returns why this is no prediction, or "" if it is one."""
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

    def against(self, found: Any, kind: str | None = None) -> PredictionOutcome:
        """Returns your guess beside the result: a number, or an estimate such as a speed-up.

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
            outcome = PredictionOutcome(self, scale * float(found), interval, verb)
        except (TypeError, ValueError):
            raise LabError(
                "against() needs a number, or an estimate such as comparison.speedup(name), "
                f"got {found!r}."
            ) from None
        guesses.send(self.what, self.unit, result=outcome.value, verb=verb)
        self.outcome = outcome
        return outcome


@dataclass(frozen=True)
class PredictionOutcome:
    """A guess, the result, and how far apart they are."""

    prediction: Prediction
    value: float
    interval: tuple[float, float] | None
    verb: str
    _shown: str = field(default_factory=lambda: uuid.uuid4().hex, compare=False, repr=False)

    @property
    def factor(self) -> float:
        """How many times too high or too low the guess was; 1 is a perfect guess."""
        guess = self.prediction.guess
        if not guess or not (math.isfinite(self.value) and self.value > 0):
            return math.nan
        return max(guess / self.value, self.value / guess)

    def __str__(self) -> str:
        guess, unit = self.prediction.guess, self.prediction.unit
        found = f"nothing was {self.verb}"
        if math.isfinite(self.value):
            found = f"{self.verb} {quantity_text(self.value, unit)}"
            if self.interval:
                found += f" ({span_text(*self.interval, unit)})"
        if guess is None:
            return f"{found[0].upper()}{found[1:]}."
        text = f"You guessed {quantity_text(guess, unit)}; {found}"
        if self.interval and self.interval[0] <= guess <= self.interval[1]:
            return f"{text}: your guess lies inside the interval."
        if math.isnan(self.factor):
            return f"{text}."
        digits = ".2f" if self.factor < 1.95 else ".2g" if self.factor < 10 else ".0f"
        side = f", {'above' if guess > self.value else 'below'} the interval"
        return f"{text}: off by a factor of {self.factor:{digits}}{side if self.interval else ''}."

    def _ipython_display_(self) -> None:
        self.show()

    def show(self, *, update: bool = False) -> None:
        """Show it in the cell's output; the box of its guess hides it until there is one."""
        from labkit.views import live

        what = self.prediction.what
        text = f"{what[:1].upper()}{what[1:]}. {self}"
        # A paragraph breaks between words; JupyterLab breaks plain text anywhere.
        html = f'<p data-labkit-outcome="{escape(what)}">{escape(text)}</p>'
        live.publish(({"text/plain": text, "text/html": html}, {}), self._shown, update=update)


def predict(
    what: str,
    guess: float | None = None,
    *,
    unit: str = "",
    between: tuple[float, float] | None = None,
) -> Prediction:
    """Ask for a guess: in a notebook a box, with a slider that goes from low to high `between`.

    What the cell shows below the box stays hidden until you guess or skip. The guess can also be
    written into the call:

    >>> mine = predict("speed-up of 2 replicas", 1.8, unit="×")
    >>> print(mine.against(0.84))
    You guessed 1.80×; measured 0.84×: off by a factor of 2.1.
    """
    from labkit.views import live

    mine = Prediction(str(what), None, str(unit))
    low, high = between or RANGES.get(mine.unit, RANGE)
    reach = (number("between", low, at_least=0), number("between", high, above=low))
    if guess is not None:
        mine.write(number("guess", guess, at_least=0))
    elif live.shows_live():
        earlier = chain.newest(mine.what)
        if earlier is not None:
            mine.write(earlier)
    if mine.guess is None:
        guesses.send(mine.what, mine.unit)
    if live.in_kernel():
        _asked[mine.what] = mine
        live.publish(_box(mine, reach), uuid.uuid4().hex)
    return mine


def _box(mine: Prediction, reach: tuple[float, float]) -> tuple[dict[str, str], dict[str, Any]]:
    from labkit.views import live
    from labkit.views.embed import embedded, with_state

    options: dict[str, Any] = {"what": mine.what, "unit": mine.unit, "range": reach}
    if not live.shows_live():
        html = f"<p>{escape(str(mine))}</p>"
        box = embedded("guess", options, key="", alt=str(mine))
        return with_state(({"text/plain": str(mine), "text/html": html}, {}), box)
    options |= {"kernel": live.listen(_hear), "guess": mine.guess}
    html = embedded("guess", options, key=uuid.uuid4().hex, alt=str(mine))
    return {"text/plain": str(mine), "text/html": html}, {}


def _hear(told: dict[str, Any]) -> None:
    """Take a guess of the page, and show the outcome anew if it is there already."""
    mine = _asked.get(str(told["what"]))
    with suppress(LabError):
        if mine is not None:
            mine.write(number("guess", told["guess"], at_least=0))
            if mine.outcome is not None:
                mine.outcome.show(update=True)


def _scale(found: str, guessed: str) -> float:
    """Returns what to multiply a result with to compare it with a guess in another unit."""
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
