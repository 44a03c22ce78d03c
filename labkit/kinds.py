"""What every room uses: the kind of a number, the error, and how quantities are written.

Every value that labkit shows is one of three kinds, and says so:

>>> print(measured("2 logical CPUs"))
measured on 2 logical CPUs
>>> print(recorded("NVIDIA H200", "2026-11-21"))
recorded on NVIDIA H200, 2026-11-21
>>> print(modelled("ring all-reduce, 2(n-1)/n of the bytes"))
modelled: ring all-reduce, 2(n-1)/n of the bytes
"""

import math
import os
import textwrap
from dataclasses import dataclass
from typing import Literal, Self

KERNEL = "LABKIT_KERNEL"  # the environment whose Python the notebook's kernel is, if it is one
WIDTH = 96  # letters in an output of JupyterLab at 1200 px; it breaks longer lines inside words


class LabError(Exception):
    """The message says what happened, with the user's own value in it, and what to do next.

    In a notebook it is shown as that message alone, without a traceback.
    """

    def _render_traceback_(self) -> list[str]:
        """What IPython prints in place of a traceback."""
        return [wrapped(f"LabError: {self}")]


@dataclass(frozen=True)
class Kind:
    """Where a number comes from: measured here, recorded elsewhere, or modelled by a formula."""

    name: Literal["measured", "recorded", "modelled"]
    source: str

    def __str__(self) -> str:
        if self.name == "modelled":
            return f"modelled: {self.source}"
        return f"{self.name} on {self.source}"


def measured(on: str) -> Kind:
    """A number that this machine has just produced."""
    return Kind("measured", on)


def recorded(where: str, when: str) -> Kind:
    """A number that another machine, or this one on another day, has produced."""
    return Kind("recorded", f"{where}, {when}")


def modelled(formula: str) -> Kind:
    """A number that a formula gives."""
    return Kind("modelled", formula)


def in_the_lab(otherwise: str) -> str:
    """What to do where a package of the lab is missing: in an environment's kernel, change it."""
    change = "This kernel has other packages: Kernel > Change Kernel… > Python 3 (ipykernel)."
    return change if KERNEL in os.environ else otherwise


def seconds_text(seconds: float) -> str:
    """Three significant digits, with a unit that keeps the number readable.

    >>> seconds_text(0.00123), seconds_text(2.5), seconds_text(754)
    ('1.23 ms', '2.50 s', '12 min 34 s')
    >>> seconds_text(90_000), seconds_text(2.9e6)
    ('25 h 0 min', '33.6 days')
    """
    if not math.isfinite(seconds):
        return "unknown time"
    size = abs(seconds)
    if not size:
        return "0 s"
    if size >= 100 * 3600:
        return f"{_three_digits(seconds / 86_400)} days"
    if size >= 99.95:
        minutes, rest = divmod(round(size), 60)
        if minutes >= 60:
            minutes = round(size / 60)
        hours, minutes = divmod(minutes, 60)
        sign = "-" if seconds < 0 else ""
        return f"{sign}{hours} h {minutes} min" if hours else f"{sign}{minutes} min {rest} s"
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if size >= 0.9995 * factor:
            return f"{_three_digits(seconds / factor)} {unit}"
    return f"{_three_digits(seconds / 1e-9)} ns"


def bytes_text(count: float) -> str:
    """Decimal units, as links and disks are sold.

    >>> bytes_text(407_080), bytes_text(12), bytes_text(15e9), bytes_text(math.inf)
    ('407 kB', '12 B', '15.0 GB', '∞ B')
    """
    if not math.isfinite(count):
        return "unknown B" if math.isnan(count) else f"{'-' if count < 0 else ''}∞ B"
    for factor, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(count) >= 0.9995 * factor:
            return f"{_three_digits(count / factor)} {unit}"
    return f"{count:.0f} B"


def rate_text(per_second: float, of: str = "images") -> str:
    """Throughput.

    >>> rate_text(123_456)
    '123,000 images/s'
    """
    if not math.isfinite(per_second):
        return f"unknown {of}/s"
    if abs(per_second) >= 100:
        digits = 3 - len(str(int(abs(per_second))))
        return f"{int(round(per_second, digits)):,} {of}/s"
    return f"{_three_digits(per_second)} {of}/s"


def ratio_text(ratio: float) -> str:
    """A speed-up.

    >>> ratio_text(1.854), ratio_text(0.6789)
    ('1.85×', '0.68×')
    """
    return f"{ratio:.2f}×" if abs(ratio) < 100 else f"{ratio:.0f}×"


def percent_text(share: float) -> str:
    """A share of one, in per cent.

    >>> percent_text(0.963), percent_text(1.0)
    ('96.3 %', '100.0 %')
    """
    return f"{100 * share:.1f} %"


def count_text(count: int) -> str:
    """A whole number with a comma between thousands.

    >>> count_text(101770)
    '101,770'
    """
    return f"{count:,}"


def counted(count: int, what: str) -> str:
    """A count with its noun.

    >>> counted(1, "rank"), counted(1024, "rank")
    ('1 rank', '1,024 ranks')
    """
    return f"{count_text(count)} {what}{'' if count == 1 else 's'}"


def _three_digits(value: float) -> str:
    size = abs(value)
    if size >= 99.95:
        return f"{value:.0f}"
    if size >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}"


def wrapped(text: str, width: int = WIDTH) -> str:
    """Each line broken between words, with its own indent; longer words stay whole."""
    lines = []
    for line in text.split("\n"):
        indent = " " * (len(line) - len(line.lstrip(" ")))
        lines += textwrap.wrap(
            line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        ) or [line]
    return "\n".join(lines)


class Quantity(float):
    """A modelled number with its formula; it computes like a float.

    >>> Seconds(0.00126, modelled("a ring"))
    1.26 ms, modelled: a ring
    >>> Seconds(0.00126, modelled("a ring")) / 2
    0.00063
    """

    unit = ""
    kind: Kind

    def __new__(cls, value: float, kind: Kind = modelled("")) -> Self:  # noqa: B008, D102
        made = super().__new__(cls, value)
        made.kind = kind
        return made

    def __str__(self) -> str:
        return f"{float(self):g} {self.unit}".rstrip()

    def __repr__(self) -> str:
        return f"{self}, {self.kind}"


class Seconds(Quantity):
    """A modelled time."""

    unit = "s"

    def __str__(self) -> str:
        return seconds_text(self)
