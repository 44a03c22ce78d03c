"""One line that says how far a long preparation is, gone when it ends."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["progress", "unseen"]

SILENT_S = 1.0
APART_S = 0.2


@contextmanager
def progress(what: str, total: int = 0) -> Iterator[Callable[[int], None]]:
    """A function to be told how much of `total` is done; it writes to stderr now and then.

    Without a total the line only says what is going on.

    >>> with progress("drawing digits", 10) as advance:
    ...     advance(5)
    """
    if os.environ.get("LABKIT_PROGRESS", "").lower() == "off":
        yield unseen
        return
    began = time.monotonic()
    shown_at, widest = began + SILENT_S - APART_S, 0

    def advance(done: int) -> None:
        nonlocal shown_at, widest
        now = time.monotonic()
        if now - shown_at < APART_S:
            return
        shown_at = now
        line = f"{what}: {100 * done // total} %" if total else what
        if 20 * done >= total > 0:
            line += f", about {(now - began) * (total - done) / done:.0f} s left"
        widest = max(widest, len(line))
        _write("\r" + line.ljust(widest))

    try:
        yield advance
    finally:
        if widest:
            _write("\r" + " " * widest + "\r")


def unseen(_done: int) -> None:
    """Progress that nobody watches."""


def _write(text: str) -> None:
    # A progress line is a courtesy: a closed or broken stderr must not cost the data.
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        pass
