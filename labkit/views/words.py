r"""Words as they are shown: names that others chose on one line, sentences wrapped at words.

>>> one_line("epoch 1\n\x1b[31mred"), one_line("price in $ or €")
('epoch 1 ␛[31mred', 'price in $ or €')
>>> print(wrapped("  - three words here\nand two", width=12))
  - three
  words here
and two
"""

from __future__ import annotations

import textwrap

__all__ = ["WIDTH", "one_line", "wrapped"]

WIDTH = 96  # letters in an output of JupyterLab at 1200 px; it breaks longer lines inside words
_SIGNS = 0x2400  # "␀", the first of the signs that stand for control characters
_JOINERS = "\u200c\u200d"  # inside words of some scripts, and inside emoji


def wrapped(text: str, width: int = WIDTH) -> str:
    """Each line broken between words, with its own indent; longer words stay whole."""
    lines = []
    for line in text.split("\n"):
        indent = " " * (len(line) - len(line.lstrip(" ")))
        lines += textwrap.wrap(
            line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        ) or [line]
    return "\n".join(lines)


def one_line(text: str) -> str:
    """Line ends and tabs become spaces, control characters signs; what has no sign is "�".

    A terminal would obey control characters, and half of a character cannot be written at all.
    """
    if text.isprintable():
        return text
    return "".join(map(_shown, text))


def _shown(letter: str) -> str:
    if letter.isprintable() or letter in _JOINERS:
        return letter
    if letter.isspace():
        return " "
    return chr(_SIGNS + ord(letter)) if letter < " " else "\N{REPLACEMENT CHARACTER}"
