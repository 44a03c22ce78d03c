"""One renderer of tables, for notebooks (`table`) and for terminals (`text_table`).

>>> print(text_table(["who", "time"], [["one device", "2.0 s"], ["two", "12.5 s"]], "Measured."))
who           time
one device   2.0 s
two         12.5 s
Measured.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from html import escape
from itertools import zip_longest

from labkit.views.words import WIDTH, wrapped

__all__ = ["table", "text_table"]

LEFT, RIGHT = "text-align: left", "text-align: right"
WHOLE = "; white-space: nowrap"
# A longer cell is a sentence: it breaks between words, but not after every word.
LONG = 36
PROSE = "; white-space: normal; overflow-wrap: anywhere; min-width: 11em"
SHORT_PROSE = "; white-space: normal; min-width: 5em"
NOTE = "margin: 0.3em 0; max-width: 52em; font-size: 0.93em; line-height: 1.4"
NUMBER = re.compile(r"[^\w\s]?\s?\d.{0,23}")


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    caption: str = "",
    footer: str = "",
    *,
    prose: bool = False,
) -> str:
    """A semantic table in HTML: caption, column heads, a row head in each row, lines below.

    Columns of numbers stand to the right and never break, words to the left; a head stands over its
    column. With `prose` all columns are words, and may break. A table that is wider than the window scrolls.
    Colours are left to the theme, so that it reads in a light and in a dark one.
    """
    rows = [list(row) for row in rows]
    sides = [LEFT if prose or not right else RIGHT for right in _numbers(rows)]
    sides += [LEFT] * (len(head) - len(sides))

    def cell(tag: str, side: str, text: str, scope: str = "") -> str:
        style = side + (PROSE if len(text) > LONG else SHORT_PROSE if prose else WHOLE)
        return f'<{tag}{scope} style="{style}">{escape(text)}</{tag}>'

    def row(cells: Sequence[str]) -> str:
        return "".join(
            cell("td", side, text) if at else cell("th", side, text, ' scope="row"')
            for at, (side, text) in enumerate(zip(sides, cells, strict=False))
        )

    title = f'<caption style="{LEFT}">{escape(caption)}</caption>' if caption else ""
    heads = "".join(
        cell("th", side, text, ' scope="col"') for side, text in zip(sides, head, strict=False)
    )
    heads = f"<thead><tr>{heads}</tr></thead>" if head else ""
    body = "".join(f"<tr>{row(cells)}</tr>" for cells in rows)
    notes = "".join(f'<p style="{NOTE}">{escape(line)}</p>' for line in footer.splitlines())
    return (
        '<div class="labkit"><div style="overflow-x: auto"><table>'
        f"{title}{heads}<tbody>{body}</tbody></table></div>{notes}</div>"
    )


def text_table(
    head: Sequence[str], rows: Iterable[Sequence[str]], footer: str = "", *, prose: bool = False
) -> str:
    """The same as plain text. A last column of sentences is wrapped, and so is the footer."""
    rows = [list(row) for row in rows]
    right = [one and not prose for one in _numbers(rows)] or [False] * len(head)
    lines = [*([list(head)] if head else []), *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    indent = sum(widths[:-1]) + 2 * len(widths[:-1])
    text = []
    for cells in lines:
        padded = "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(cells, widths, right, strict=True)
        ).rstrip()
        if len(padded) > WIDTH and WIDTH - indent >= LONG:
            first, *more = textwrap.wrap(cells[-1], WIDTH - indent)
            padded = "\n".join([padded[:indent] + first, *(" " * indent + one for one in more)])
        text.append(padded)
    return "\n".join([*text, *([wrapped(footer)] if footer else [])])


def _numbers(rows: Sequence[Sequence[str]]) -> list[bool]:
    """For each column, whether it holds numbers; the first holds the names of the rows."""
    columns = zip_longest(*rows, fillvalue="")
    return [at > 0 and _mostly_numbers(column) for at, column in enumerate(columns)]


def _mostly_numbers(column: Sequence[str]) -> bool:
    """A reason may stand in place of a number, as in "not supported"."""
    there = [cell for cell in column if cell.strip(" –—-?")]
    return 2 * sum(NUMBER.fullmatch(cell) is not None for cell in there) >= max(len(there), 1)
