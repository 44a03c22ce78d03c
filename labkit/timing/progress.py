"""The line that says how far a measurement is and how long it still takes."""

from __future__ import annotations

import os
import sys
import time

__all__ = ["Progress"]


class Progress:
    """One line on stderr, rewritten in place, erased at the end.

    It appears after a second, so that quick measurements stay silent, and is written between
    calls only, never during one.
    """

    def __init__(self) -> None:
        self._begun = self._last = time.monotonic()
        self._width = 0

    def show(self, text: str) -> None:
        """Rewrite the line, at most every 0.4 s."""
        now = time.monotonic()
        if now - self._begun < 1 or now - self._last < 0.4 or not _wanted():
            return
        self._last = now
        print(f"\r{text:<{self._width}}", end="", file=sys.stderr, flush=True)
        self._width = max(self._width, len(text))

    def erase(self) -> None:
        """Leave no trace of it."""
        if self._width:
            print(f"\r{' ' * self._width}\r", end="", file=sys.stderr, flush=True)
            self._width = 0


def _wanted() -> bool:
    if os.environ.get("LABKIT_PROGRESS", "").lower() == "off":
        return False
    # A log file has no line to rewrite; a notebook has, though it is no terminal.
    return "ipykernel" in sys.modules or bool(getattr(sys.stderr, "isatty", bool)())
