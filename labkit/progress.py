"""The one progress line: in place, only when something takes long, gone when it is done.

On stderr in a terminal; in a notebook an output of its own, for what comes on stderr stands on red
ground there, also when nothing is left of it.

>>> with progress("epoch 1 of 5", total=1875) as advance:
...     advance(100)
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from labkit.kinds import seconds_text

__all__ = ["Line", "progress", "unseen"]

SILENT = 1.0  # seconds before a line appears at all
APART = 0.25  # seconds between two writings


class Line:
    """One line, rewritten in place and erased at the end."""

    def __init__(self) -> None:
        now = time.monotonic()
        self._next = now + SILENT
        self._width = 0
        self._output = ""  # in a notebook: the id of the output that shows it

    def show(self, text: str) -> None:
        """Rewrite the line, unless it is too early or too soon after the last time."""
        now = time.monotonic()
        if now < self._next or not _wanted():
            return
        self._next = now + APART
        if _in_notebook():
            self._publish(text)
            return
        # Blanks over the rest of the last text: not every front end knows the erase sequence.
        self._width = max(self._width, len(text))
        _write("\r" + text.ljust(self._width))

    def erase(self) -> None:
        """Leave no trace of it."""
        if self._output:
            self._publish("")
        if self._width:
            _write("\r" + " " * self._width + "\r")
            self._width = 0

    def _publish(self, text: str) -> None:
        from IPython.display import display, update_display

        data = {"text/plain": text}
        if self._output:
            update_display(data, raw=True, display_id=self._output)  # type: ignore[no-untyped-call]
        else:
            self._output = uuid.uuid4().hex
            display(data, raw=True, display_id=self._output)  # type: ignore[no-untyped-call]


@contextmanager
def progress(what: str, total: float = 0) -> Iterator[Callable[[float], None]]:
    """A function to be told how much of `total` is done. Without a total: only what is going on."""
    began, line = time.monotonic(), Line()

    def advance(done: float) -> None:
        text = what
        if total:
            text += f": {100 * done / total:.0f} %"
            # An estimate from less than this would jump about.
            if total > done >= total / 20:
                passed = time.monotonic() - began
                text += f", about {seconds_text(passed * (total - done) / done)} left"
        line.show(text)

    try:
        yield advance
    finally:
        line.erase()


def unseen(_done: float) -> None:
    """Progress that nobody watches."""


def _wanted() -> bool:
    if os.environ.get("LABKIT_PROGRESS", "").lower() == "off":
        return False
    # A log file has no line to rewrite; a notebook has, though it is no terminal.
    return "ipykernel" in sys.modules or bool(getattr(sys.stderr, "isatty", bool)())


def _in_notebook() -> bool:
    kernel = sys.modules.get("ipykernel.zmqshell")
    return kernel is not None and kernel.ZMQInteractiveShell.initialized()


def _write(text: str) -> None:
    # A progress line is a courtesy: a closed or broken stderr must not cost the data.
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        pass
