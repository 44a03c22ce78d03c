"""How an object of the course shows itself: by its table, or as source; as text, in a notebook."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Any

# By kinds of Pygments, in the colours of the page's editor; where it has none, bold is left.
WORD = "color: var(--jp-mirror-editor-keyword-color); font-weight: 600"
COLOURS = {
    "Keyword": WORD,
    "Operator.Word": WORD,
    "String": "color: var(--jp-mirror-editor-string-color)",
    "Number": "color: var(--jp-mirror-editor-number-color)",
    "Name.Function": "color: var(--jp-mirror-editor-def-color)",
    "Comment": "font-style: italic",  # JupyterLab's own colour is too dark in its dark theme
}


class ShownAsTable:
    """An object whose `table()` is what `print` and a cell show."""

    def table(self) -> Any:
        """Its caption, head, rows and footer, as a `Table` of views."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return repr(self.table())

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        shown: dict[str, str] = self.table()._repr_mimebundle_()
        return shown


@dataclass(frozen=True, repr=False)
class SourceCode:
    """Python's source. Name it in a cell to read it in colours."""

    text: str

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        html = f'<pre tabindex="0" style="overflow-x: auto">{coloured(self.text)}</pre>'
        return {"text/plain": self.text, "text/html": html}


def source(*things: str | Callable[..., Any]) -> SourceCode:
    """The source of functions and classes, or of pieces of a program, one below the other.

    >>> labkit.source(labkit.training.training_step)        # doctest: +SKIP
    """
    texts = (one if isinstance(one, str) else inspect.getsource(one) for one in things)
    return SourceCode("\n\n\n".join(one.strip("\n") for one in texts))


def coloured(code: str) -> str:
    """Python's source as HTML, in the colours of the page's editor."""
    from pygments.lexers import PythonLexer

    html = ""
    for kind, text in PythonLexer(stripnl=False, ensurenl=False).get_tokens(code):
        style = next((css for name, css in COLOURS.items() if name in str(kind)), "")
        html += f'<span style="{style}">{escape(text)}</span>' if style else escape(text)
    return html
