"""How an outcome looks in a notebook."""

from __future__ import annotations

from html import escape

__all__ = ["shown"]


def shown(text: str) -> dict[str, str]:
    """What a notebook shows of an outcome: its first sentence stands out."""
    verdict, _stop, rest = text.partition(". ")
    lines = "<br>".join(escape(line) for line in rest.split("\n"))
    return {
        "text/plain": text,
        "text/html": f"<p><strong>{escape(verdict)}.</strong> {lines}</p>",
    }
