"""One number with its interval, its unit and its kind, for tables, verdicts and predictions."""

import math
import re
from dataclasses import dataclass

from labkit.kinds import Kind, bytes_text, rate_text, ratio_text, seconds_text

SECONDS = {"µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "days": 86_400.0}


@dataclass(frozen=True)
class Estimate:
    """A value, the interval around it, what it counts in, and where it comes from.

    `confidence` is None where `low` and `high` are quartiles: they describe the calls, no more.
    It is 0 where there is no interval, as after one round.

    >>> from labkit.kinds import measured
    >>> print(Estimate(0.84, 0.80, 0.88, "×", 0.95, measured("2 cores")))
    0.84× (95 % interval: 0.80–0.88×)
    >>> print(Estimate(0.0102, 0.0101, 0.0104, "s", None, measured("2 cores")))
    10.2 ms (middle half: 10.1–10.4 ms)
    """

    value: float
    low: float
    high: float
    unit: str
    confidence: float | None
    kind: Kind

    def __str__(self) -> str:
        value = quantity_text(self.value, self.unit, self.high - self.low)
        if self.confidence == 0:
            return f"{value} (no interval)"
        what = "middle half" if self.confidence is None else f"{percent(self.confidence)} interval"
        return f"{value} ({what}: {span_text(self.low, self.high, self.unit)})"


def percent(share: float) -> str:
    """Returns a share of one with the digits that it has, up to three.

    >>> percent(0.95), percent(1 - 0.05 / 3), percent(0.005)
    ('95 %', '98.3 %', '0.5 %')
    """
    return f"{100 * share:.3g} %"


def quantity_text(value: float, unit: str, width: float = math.inf) -> str:
    """Returns a number in its unit. A ratio with a narrow interval has one more digit.

    >>> quantity_text(0.0123, "s"), quantity_text(1.0042, "×", 0.01), quantity_text(0.5, "share")
    ('12.3 ms', '1.004×', '50 %')
    >>> quantity_text(90, "min"), quantity_text(0, "h"), quantity_text(11.2e6, "B/s")
    ('1 h 30 min', '0 h', '11.2 MB/s')
    """
    if not math.isfinite(value):
        return "unknown"
    if unit in SECONDS:
        return seconds_text(value * SECONDS[unit]) if value else f"0 {unit}"
    if unit == "×":
        return f"{value:.3f}×" if width < 0.05 and value < 10 else ratio_text(value)
    if unit == "share":
        return f"{100 * value:.0f} %"
    if unit == "B/s":
        return f"{bytes_text(value)}/s"
    if unit.endswith("/s"):
        return rate_text(value, unit[:-2])
    return f"{value:{',.0f' if abs(value) >= 1000 else '.3g'}} {unit}".rstrip()


def span_text(low: float, high: float, unit: str) -> str:
    """Returns two ends, with the unit only once if both have the same.

    >>> span_text(0.8, 0.88, "×"), span_text(0.0101, 0.0103, "s"), span_text(0.0009, 2.0, "s")
    ('0.80–0.88×', '10.1–10.3 ms', '900 µs–2.00 s')
    """
    ends = [quantity_text(end, unit, high - low) for end in (low, high)]
    # Each as one number and its unit; "1 h 30 min" is none.
    first, last = (re.fullmatch(r"(\S*\d)(\D*)", end) for end in ends)
    if first and last and first[2] == last[2]:
        return f"{first[1]}–{last[0]}"
    return "–".join(ends)
