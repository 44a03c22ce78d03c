"""Predict first: a guess is written down before the measurement, and both are shown after it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape

from labkit import plain
from labkit.kinds import LabError
from labkit.timing.estimate import Estimate, quantity_text, span_text
from labkit.timing.judge import Verdict

__all__ = ["Outcome", "Prediction", "predict"]

_SECONDS = {"ns": 1e-9, "µs": 1e-6, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}

Found = float | tuple[float, float, float] | Estimate | Verdict


@plain.stored
@dataclass(frozen=True)
class Prediction:
    """What you expect, before you look."""

    what: str
    guess: float
    unit: str = ""

    def __str__(self) -> str:
        return f"You guess {_text(self.guess, self.unit)} for the {self.what}."

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return _shown(str(self))

    def against(self, found: Found, kind: str | None = None) -> Outcome:
        """Your guess beside what came out.

        `found` is a number, (value, low, high), or an estimate or verdict of a comparison. A whole
        number was counted. Of any other number you can say its kind: "counted", "modelled".
        """
        verb: str
        if isinstance(found, Verdict):
            found = found.estimate
        if isinstance(found, Estimate):
            scale = _scale(found.unit, self.unit)
            ends = (found.value, found.low, found.high) if found.confidence > 0 else (found.value,)
            verb = found.kind.name
        elif isinstance(found, tuple):
            if len(found) != 3:
                raise LabError(
                    f"{found!r} is not a value with its interval. Give (value, low, high)."
                )
            ends, scale, verb = found, 1.0, "measured"
        else:
            # A modelled time knows its kind and its unit; a plain number was measured.
            known, unit = getattr(found, "kind", None), getattr(found, "unit", self.unit)
            verb = "counted" if isinstance(found, int) else getattr(known, "name", "measured")
            ends, scale = (found,), _scale(unit, self.unit)
        try:
            numbers = [scale * float(end) for end in ends]
        except (TypeError, ValueError):
            raise LabError(
                f"A guess cannot be compared with a {type(found).__name__}. Give a number, or ask "
                "the result for one: run.seconds(), comparison.speedup(name), comparison.verdict()."
            ) from None
        low, high = numbers[1:] if len(numbers) == 3 else (None, None)
        return Outcome(self.what, self.guess, self.unit, numbers[0], low, high, kind or verb)


@plain.stored
@dataclass(frozen=True)
class Outcome:
    """A guess, what came out, and how far apart they are."""

    what: str
    guess: float
    unit: str
    value: float
    low: float | None
    high: float | None
    verb: str

    @property
    def factor(self) -> float:
        """How many times too high or too low the guess was; 1 is a perfect guess."""
        if not (math.isfinite(self.value) and self.value > 0):
            return math.nan
        return max(self.guess / self.value, self.value / self.guess)

    @property
    def inside(self) -> bool | None:
        """Whether the guess lies in the interval; None without one."""
        if self.low is None or self.high is None:
            return None
        return self.low <= self.guess <= self.high

    def __str__(self) -> str:
        found = _text(self.value, self.unit)
        if self.low is not None and self.high is not None:
            found += f" ({_span(self.low, self.high, self.unit)})"
        text = f"You guessed {_text(self.guess, self.unit)}; {self.verb} {found}"
        if self.inside:
            return f"{text}: your guess lies inside the interval."
        if math.isnan(self.factor):
            return f"{text}."
        away = f"off by a factor of {_factor(self.factor)}"
        if self.inside is None:
            return f"{text}: {away}."
        side = "above" if self.guess > self.value else "below"
        return f"{text}: {away}, {side} the interval."

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return _shown(f"{self.what[:1].upper()}{self.what[1:]}. {self}")


def predict(what: str, guess: float, *, unit: str = "") -> Prediction:
    """Write down what you expect.

    >>> mine = predict("speed-up of 2 replicas", 1.8, unit="×")
    >>> print(mine.against((0.84, 0.80, 0.88)))
    You guessed 1.80×; measured 0.84× (0.80–0.88×): off by a factor of 2.1, above the interval.
    """
    return Prediction(what, _guess(what, guess), unit)


def _guess(what: str, guess: object) -> float:
    if guess is ... or guess is None:
        raise LabError(f"Write your guess first: replace the ... by a number for the {what}.")
    return _number(guess)


def _shown(text: str) -> dict[str, str]:
    # A paragraph breaks between words; JupyterLab breaks plain text anywhere.
    return {"text/plain": text, "text/html": f"<p>{escape(text)}</p>"}


def _number(value: object) -> float:
    if isinstance(value, (str, bool)) or not hasattr(value, "__float__"):
        raise LabError(f"{value!r} is not a number. Write a number above 0, such as 1.5.")
    number = float(value)
    if not (math.isfinite(number) and number > 0):
        raise LabError(f"{value!r} is not above 0. Write a number above 0, such as 1.5.")
    return number


def _scale(found: str, guessed: str) -> float:
    """What to multiply a result with to compare it with a guess in another unit."""
    if found in _SECONDS and guessed in _SECONDS:
        return _SECONDS[found] / _SECONDS[guessed]
    if found == "" and guessed == "%":
        return 100.0
    if found != guessed and guessed:
        raise LabError(
            f"Your guess is in {guessed!r} and the result in {found or 'shares of one'!r}. "
            f"Predict again with unit={found!r}."
        )
    return 1.0


def _text(value: float, unit: str) -> str:
    if unit in _SECONDS:
        return quantity_text(value * _SECONDS[unit], "s")
    if unit == "%":
        return f"{value:.3g} %"
    if unit == "" or not (unit == "×" or unit.endswith("/s")):
        return f"{_plain(value)} {unit}".rstrip()
    return quantity_text(value, unit)


def _span(low: float, high: float, unit: str) -> str:
    if unit in _SECONDS:
        return span_text(low * _SECONDS[unit], high * _SECONDS[unit], "s")
    if unit == "×":
        return f"{low:.2f}–{high:.2f}×"
    if unit.endswith("/s"):
        return span_text(low, high, unit)
    return f"{_plain(low)}–{_plain(high)} {unit}".rstrip()


def _plain(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _factor(factor: float) -> str:
    return f"{factor:.2f}" if factor < 1.95 else f"{factor:.2g}" if factor < 10 else f"{factor:.0f}"
