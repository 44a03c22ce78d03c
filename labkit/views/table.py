"""One HTML table for everything that labkit shows as a table.

>>> table(["who", "time"], [["one device", "2 s"]], caption="Epochs")[:22]
'<table class="labkit">'
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["table"]

# JupyterLab sets all cells to the right, which suits numbers and not words.
LEFT = ' style="text-align: left"'


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    caption: str = "",
    footer: str = "",
    *,
    prose: bool = False,
) -> str:
    """A semantic table: a caption, column heads, a row head in each row, a footer of some lines.

    With `prose` the cells hold sentences, and are set to the left, as are their heads.

    Colours are left to the theme, so that it reads in a light and in a dark one.
    """
    title = f"<caption{LEFT}>{escape(caption)}</caption>" if caption else ""
    side = LEFT if prose else ""
    heads = "".join(f'<th scope="col"{side}>{escape(cell)}</th>' for cell in head)
    heads = f"<thead><tr>{heads}</tr></thead>" if head else ""
    body = "".join(
        f'<tr><th scope="row"{LEFT}>{escape(first)}</th>'
        + "".join(f"<td{side}>{escape(cell)}</td>" for cell in rest)
        + "</tr>"
        for first, *rest in rows
    )
    foot = "".join(
        f'<tr><td colspan="{len(head) or 2}"{LEFT}>{escape(line)}</td></tr>'
        for line in footer.splitlines()
    )
    foot = f"<tfoot>{foot}</tfoot>" if foot else ""
    return f'<table class="labkit">{title}{heads}<tbody>{body}</tbody>{foot}</table>'
