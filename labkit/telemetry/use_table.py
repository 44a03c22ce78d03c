"""How a table of spans is written: as text and as HTML. Nothing is computed here."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from labkit.kinds import bytes_text, rate_text, seconds_text

if TYPE_CHECKING:
    from labkit.telemetry.use import SpanTable, SpanUse

__all__ = ["FORMS", "html", "joules_text", "text"]

_ONE_LINE = 16  # letters
_NONE = "–"
_GOING_ON = " (going on)"
_MOST_ROWS, _KEPT = 200, 100  # of HTML: a page with more is slow, and nobody reads the middle
_EXPLAINED = {
    "too short to measure": (
        "Too short to measure: fewer updates of the gauge than would make a mean of them."
    ),
}


def joules_text(joules: float) -> str:
    """Three digits, with the unit that keeps them readable.

    >>> joules_text(12.345), joules_text(45_678), joules_text(3.6e6), joules_text(0.00333)
    ('12.3 J', '45.7 kJ', '3.60 MJ', '0.00333 J')
    """
    for factor, unit in ((1e9, "GJ"), (1e6, "MJ"), (1e3, "kJ"), (1.0, "J")):
        if abs(joules) >= 0.9995 * factor or unit == "J":
            return f"{_three_digits(joules / factor)} {unit}"
    raise AssertionError("unreachable")


def _three_digits(value: float) -> str:
    """Of any number that is not 0, three digits that say something.

    >>> _three_digits(123.4), _three_digits(1.5), _three_digits(0.0769), _three_digits(0.0)
    ('123', '1.50', '0.0769', '0')
    """
    if not value or not math.isfinite(value):
        return f"{value:g}"
    digits = 2 - int(f"{value:.2e}".partition("e")[2])
    return f"{value:.{max(digits, 0)}f}"


def text(table: SpanTable) -> str:
    """A line for each span and device, sentences about what is missing, the kind."""
    head, rows = _cells(table)
    if not rows:
        return "\n".join(["No device was seen.", *_under(table)])
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    words = _words(head)
    lines = [
        "  ".join(
            cell.ljust(width) if at < words else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (head, *rows)
    ]
    return "\n".join([*lines, *_under(table)])


def _percent(value: float) -> str:
    return f"{value:.0f} %"


# How each number of a row is written, in the order of the columns.
FORMS: dict[str, Callable[[float], str]] = {
    "utilisation": _percent,
    "peak_utilisation": _percent,
    "peak_memory": bytes_text,
    "joules": joules_text,
}


def html(table: SpanTable) -> str:
    """The same for notebooks."""
    from labkit.views.table import table as drawn

    head, rows = _cells(table)
    footer = " ".join(_under(table))
    # A short name stays on one line, however many columns there are.
    rows = _folded([[_unbroken(row[0]), *row[1:]] for row in rows])
    return drawn(head, rows, caption="What each span used", footer=footer)


def _folded(rows: list[list[str]]) -> list[list[str]]:
    """The first and the last of very many; a row between them says how many are left out."""
    if len(rows) <= _MOST_ROWS:
        return rows
    left_out = len(rows) - 2 * _KEPT
    said = f"… {left_out:,} more rows: .table().rows holds all"
    first = rows[-_KEPT]
    if not first[0]:  # the span's name stood higher up
        first[0] = next(name for name, *_ in reversed(rows[:-_KEPT]) if name)
    return [*rows[:_KEPT], [said, *[""] * (len(rows[0]) - 1)], *rows[-_KEPT:]]


def _unbroken(name: str) -> str:
    return name.replace(" ", "\N{NO-BREAK SPACE}") if len(name) <= _ONE_LINE else name


def _words(head: list[str]) -> int:
    """How many of the first columns hold words."""
    return 2 if "device" in head else 1


def _cells(table: SpanTable) -> tuple[list[str], list[list[str]]]:
    several = len({row.device for row in table.rows}) > 1
    images = any(row.span.images is not None for row in table.rows)
    head = ["span", *(["device"] if several else []), "time", "utilisation", "peak", "peak memory"]
    head += ["energy", *(["images/s", "images/J"] if images else [])]
    rows = []
    last = None
    for row in table.rows:
        # A span's name stands once, at the first of its devices.
        name = "" if several and row.span == last else _name(row)
        last = row.span
        cells = [name, *([_device(row)] if several else []), seconds_text(row.seconds)]
        cells += [row.text(field) for field in FORMS]
        cells += [_rate(row.images_per_second), _rate(row.images_per_joule)] if images else []
        rows.append(cells)
    return head, rows


def _name(row: SpanUse) -> str:
    return _shown(row.span.name) + (_GOING_ON if row.going_on else "")


def _shown(text: str) -> str:
    from labkit.views.words import one_line

    return one_line(text)


def _device(row: SpanUse) -> str:
    return _shown(row.label or row.name)


def _rate(value: float | None) -> str:
    if value is None:
        return _NONE
    if abs(value) < 99.95:
        return _three_digits(value)
    return rate_text(value, "").removesuffix(" /s")


def _under(table: SpanTable) -> list[str]:
    whys = {why for row in table.rows for _, why in row.missing}
    said = str(table.kind)
    explained = [sentence for why, sentence in _EXPLAINED.items() if why in whys]
    under = [*explained, *table.notes, f"{said[:1].upper()}{said[1:]}."]
    return [_shown(sentence) for sentence in under]
