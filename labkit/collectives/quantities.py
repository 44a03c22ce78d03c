"""Modelled seconds and bytes: floats that say by which formula nobody has timed them.

>>> from labkit.kinds import modelled
>>> Seconds(0.00126, modelled("a ring"))
1.26 ms, modelled: a ring
>>> Seconds(0.00126, modelled("a ring")) / 2
0.00063
"""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Self, TypeGuard, TypeVar

from labkit.kinds import Kind, bytes_text, seconds_text

__all__ = ["Bytes", "Seconds", "is_number", "is_whole"]

Q = TypeVar("Q", bound="_Quantity")


def is_whole(value: object) -> TypeGuard[int]:
    """Whether it is a whole number, of Python or of numpy."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[float]:
    """Whether it is a number, of Python or of numpy."""
    return isinstance(value, Real) and not isinstance(value, bool)


class _Quantity(float):
    kind: Kind

    def __new__(cls, value: float, kind: Kind) -> Self:
        made = super().__new__(cls, value)
        made.kind = kind
        return made

    def __getnewargs__(self) -> tuple[float, Kind]:  # type: ignore[override]
        return float(self), self.kind

    def __repr__(self) -> str:
        return f"{self}, {self.kind}"


class Seconds(_Quantity):
    """A time; it computes like a float, and the result of computing with it is a float."""

    unit = "s"

    def __str__(self) -> str:
        return seconds_text(self)


class Bytes(_Quantity):
    """A size; it computes like a float, and the result of computing with it is a float."""

    def __str__(self) -> str:
        return bytes_text(self) if math.isfinite(self) else "no size"
