"""The checks of arguments at labkit's public edge: one sentence with the user's own value in it.

>>> whole("batch", 32, at_least=1), number("rate", 0.1, above=0), one_of("mode", "sync", ["sync"])
(32, 0.1, 'sync')
"""

import difflib
import math
import operator
from collections.abc import Iterable
from typing import Any, TypeVar

from labkit.kinds import LabError

T = TypeVar("T")
MOST = 10**15  # of anything that the course counts
SMALLEST, LARGEST = 1e-30, 1e30  # products and quotients of such numbers are finite


def whole(name: str, value: Any, *, at_least: int = 0, at_most: int = MOST) -> int:
    """The value as an int; NumPy's integers too, but no bool and no 2.0."""
    try:
        count = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        count = None
    if count is None or not at_least <= count <= at_most:
        limits = f"from {at_least} to {at_most}"
        if at_most == MOST and (count is None or count < at_least):
            limits = f"≥ {at_least}"
        raise LabError(f"{name} must be a whole number {limits}, got {_text(value)}.")
    return count


def number(
    name: str,
    value: Any,
    *,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
    infinite: bool = False,
) -> float:
    """The value as a finite float within its limits; if `infinite`, it may be inf."""
    is_bool = isinstance(value, bool) or str(getattr(value, "dtype", "")) == "bool"
    try:
        result = math.nan if is_bool or isinstance(value, (str, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError):
        result = math.nan
    if infinite and result == math.inf:
        return result
    limits = {">": above, "≥": at_least, "<": below, "≤": at_most}
    given = {sign: limit for sign, limit in limits.items() if limit is not None}
    holds = {">": operator.gt, "≥": operator.ge, "<": operator.lt, "≤": operator.le}
    usual = (SMALLEST if above == 0 else 0) <= abs(result) <= LARGEST
    if usual and all(holds[sign](result, limit) for sign, limit in given.items()):
        return result
    text = " and ".join(f"{sign} {limit:g}" for sign, limit in given.items())
    if result and math.isfinite(result) and not usual:
        text = f"between {SMALLEST:g} and {LARGEST:g} in size"
    raise LabError(f"{name} must be a finite number{' ' * bool(text)}{text}, got {_text(value)}.")


UNITS = {"kbit/s": 125, "Mbit/s": 125e3, "Gbit/s": 125e6, "MB/s": 1e6, "GB/s": 1e9}


def bytes_per_second(name: str, value: Any, *, infinite: bool = False) -> float:
    """Returns a bandwidth as a float of bytes per second, also of words.

    >>> bytes_per_second("bandwidth", "100 Mbit/s"), bytes_per_second("bandwidth", "1.5 GB/s")
    (12500000.0, 1500000000.0)
    """
    if not isinstance(value, str):
        return number(name, value, above=0, infinite=infinite)
    amount, _, unit = value.strip().partition(" ")
    try:
        return number(name, float(amount) * UNITS[unit.strip()], above=0)
    except (KeyError, ValueError):
        units = ", ".join(UNITS)
        raise LabError(
            f'{name} must be bytes per second, or words such as "100 Mbit/s" (units: {units}), '
            f"got {value!r}."
        ) from None


def numbers(name: str, values: Any, **limits: Any) -> list[float]:
    """The values as finite floats within the limits, at least one."""
    try:
        found = [] if isinstance(values, (str, bytes)) else [*values]
    except TypeError:
        found = []
    if not found:
        raise LabError(f"{name} must be a list of numbers, got {_text(values)}.")
    return [number(name, one, **limits) for one in found]


def one_of(name: str, value: T, options: Iterable[T]) -> T:
    """The value, if it is among the options."""
    known = list(options)
    if value in known:
        return value
    names, hint = ", ".join(map(repr, known)), near(value, known)
    raise LabError(f"{name} must be one of {names}, got {value!r}.{hint}")


def near(given: object, known: Iterable[object]) -> str:
    """Returns " Did you mean 'ranks'?" of the name that is nearest to "rank", if one is near."""
    found = difflib.get_close_matches(str(given), map(str, known), 1)
    return f" Did you mean {found[0]!r}?" if found else ""


def _text(value: Any) -> str:
    """What was given, of which a long number or list is cut."""
    if isinstance(value, int) and value.bit_length() > 200:
        return f"a number of {value.bit_length()} bits"
    return text if len(text := repr(value)) <= 200 else f"{text[:200]}…"
