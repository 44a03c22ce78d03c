r"""Names that somebody else chose, on one line and harmless, wherever they are shown.

>>> one_line("epoch 1\n\x1b[31mred"), one_line("price in $ or €")
('epoch 1 ␛[31mred', 'price in $ or €')
"""

from __future__ import annotations

__all__ = ["one_line"]

_SIGNS = 0x2400  # "␀", the first of the signs that stand for control characters
_JOINERS = "\u200c\u200d"  # inside words of some scripts, and inside emoji


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
