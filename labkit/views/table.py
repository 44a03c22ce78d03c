"""One HTML table for everything that labkit shows as a table.

>>> table(["who", "time"], [["one device", "2 s"]], caption="Epochs")[:47]
'<table class="labkit"><caption>Epochs</caption>'
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["table"]


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "", footer: str = ""
) -> str:
    """A semantic table: a caption, column heads, a row head in each row, a footer line.

    Colours are left to the theme, so that it reads in a light and in a dark one.
    """
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    heads = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    body = "".join(
        f'<tr><th scope="row">{escape(first)}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in rest)
        + "</tr>"
        for first, *rest in rows
    )
    foot = f'<tfoot><tr><td colspan="{len(head)}">{escape(footer)}</td></tr></tfoot>'
    return (
        f'<table class="labkit">{title}<thead><tr>{heads}</tr></thead>'
        f"<tbody>{body}</tbody>{foot if footer else ''}</table>"
    )
