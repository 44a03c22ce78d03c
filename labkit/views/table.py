"""One renderer of tables, for notebooks (`table`) and for terminals (`text_table`).

>>> print(text_table(["who", "time"], [["one device", "2.0 s"], ["two", "12.5 s"]], "Measured."))
who           time
one device   2.0 s
two         12.5 s
Measured.
"""

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import chain, repeat, zip_longest

from labkit.kinds import WIDTH, wrapped

LEFT, RIGHT = "text-align: left", "text-align: right"
WHOLE = "; white-space: nowrap"
# A longer cell is a sentence: it breaks between words, but neither after every word nor inside one.
LONG = 36
PROSE = "; white-space: normal; min-width: 11em"
SHORT_PROSE = "; white-space: normal; min-width: 5em"
HEAD = "; vertical-align: bottom"  # it may break, so that a column is as wide as its numbers
NOTE = "margin: 0.3em 0; max-width: 52em; font-size: 0.93em; line-height: 1.4"
NUMBER = re.compile(r"[^\w\s]?\s?\d.{0,23}")


@dataclass(frozen=True, repr=False)
class Table:
    """A table that shows itself, in a notebook and as text."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    footer: str = ""
    prose: bool = False

    def __repr__(self) -> str:
        text = text_table(self.head, self.rows, self.footer, prose=self.prose)
        return f"{self.caption}\n{text}".lstrip("\n")

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        html = table(self.head, self.rows, self.caption, self.footer, prose=self.prose)
        return {"text/plain": repr(self), "text/html": html}


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    caption: str = "",
    footer: str = "",
    *,
    prose: bool = False,
) -> str:
    """Returns a semantic table in HTML: caption, column heads, a row head in each row, lines below.

    Columns of numbers stand to the right and never break, words to the left; a head stands over
    its column, and may break. With `prose` all columns are words, and may break. A table that is
    wider than the window scrolls. Colours are left to the theme, so that it reads in a light and
    in a dark one.
    """
    rows = [list(row) for row in rows]
    sides = [LEFT if prose or not right else RIGHT for right in _numbers(rows)]
    sides += [LEFT] * (len(head) - len(sides))

    def row(cells: Sequence[str], scopes: Iterable[str]) -> str:
        html = ""
        for side, text, scope in zip(sides, cells, scopes, strict=False):
            style = side + (PROSE if len(text) > LONG else SHORT_PROSE if prose else WHOLE)
            style = side + HEAD if scope == "col" else style
            tag, scoped = ("th", f' scope="{scope}"') if scope else ("td", "")
            html += f'<{tag}{scoped} style="{style}">{escape(text)}</{tag}>'
        return f"<tr>{html}</tr>"

    title = f'<caption style="{LEFT}">{escape(caption)}</caption>' if caption else ""
    heads = f"<thead>{row(head, repeat('col'))}</thead>" if head else ""
    body = "".join(row(cells, chain(["row"], repeat(""))) for cells in rows)
    notes = "".join(f'<p style="{NOTE}">{escape(line)}</p>' for line in footer.splitlines())
    return (
        '<div class="labkit"><div style="overflow-x: auto"><table>'
        f"{title}{heads}<tbody>{body}</tbody></table></div>{notes}</div>"
    )


def text_table(
    head: Sequence[str], rows: Iterable[Sequence[str]], footer: str = "", *, prose: bool = False
) -> str:
    """Returns the same as plain text, with a last column of sentences and the footer wrapped."""
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
    """Returns for each column whether it is mostly numbers; the first has the rows' names.

    A reason may stand in place of a number, as in "not supported".
    """
    columns = (
        [cell for cell in one if cell.strip(" –—-?")] for one in zip_longest(*rows, fillvalue="")
    )
    mostly = [2 * len(list(filter(NUMBER.fullmatch, one))) >= max(len(one), 1) for one in columns]
    return [False, *mostly[1:]][: len(mostly)]
