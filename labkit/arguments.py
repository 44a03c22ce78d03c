"""The checks of arguments at labkit's public edge: one sentence with the user's own value in it.

>>> whole("batch", 32, at_least=1), number("rate", 0.1, above=0), one_of("mode", "sync", ["sync"])
(32, 0.1, 'sync')
"""

import math
import operator
from collections.abc import Iterable
from typing import Any, TypeVar

from labkit.kinds import LabError

T = TypeVar("T")


def whole(name: str, value: Any, *, at_least: int = 0, at_most: int | None = None) -> int:
    """The value as an int; NumPy's integers too, but no bool and no 2.0."""
    try:
        count = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        count = None
    if count is None or count < at_least or (at_most is not None and count > at_most):
        limits = f"≥ {at_least}" if at_most is None else f"from {at_least} to {at_most}"
        raise LabError(f"{name} must be a whole number {limits}, got {value!r}.")
    return count


def number(
    name: str,
    value: Any,
    *,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
) -> float:
    """The value as a finite float within its limits."""
    try:
        result = math.nan if isinstance(value, (bool, str, bytes)) else float(value)
    except (TypeError, ValueError):
        result = math.nan
    limits = {">": above, "≥": at_least, "<": below, "≤": at_most}
    given = {sign: limit for sign, limit in limits.items() if limit is not None}
    holds = {">": operator.gt, "≥": operator.ge, "<": operator.lt, "≤": operator.le}
    if math.isfinite(result) and all(holds[sign](result, limit) for sign, limit in given.items()):
        return result
    text = " and ".join(f"{sign} {limit:g}" for sign, limit in given.items())
    raise LabError(f"{name} must be a finite number{' ' if text else ''}{text}, got {value!r}.")


def one_of(name: str, value: T, options: Iterable[T]) -> T:
    """The value, if it is among the options."""
    known = list(options)
    if value in known:
        return value
    raise LabError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}.")
