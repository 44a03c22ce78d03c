"""The one progress line: in place, only when something takes long, erased when it is done.

>>> with progress("epoch 1 of 5", total=1875) as advance:
...     advance(100)

In a terminal it is written to stderr. In a notebook it is an output of its own, because stderr has
a red background there; in the end this output holds nothing and takes no room on the page.
"""

import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from labkit.kinds import seconds_text

SILENT = 1.0  # seconds before a line appears at all
APART = 0.25  # seconds between two updates


class ProgressLine:
    """One line, rewritten in place and erased at the end."""

    def __init__(self) -> None:
        self._next = time.monotonic() + SILENT
        self._width = 0  # in a terminal: of the longest text so far
        self._output = ""  # in a notebook: the id of the output that shows it

    def show(self, text: str) -> None:
        """Rewrite the line, unless it is too early or too soon after the last time."""
        now = time.monotonic()
        if now < self._next or os.environ.get("LABKIT_PROGRESS", "").lower() == "off":
            return
        self._next = now + APART
        kernel = sys.modules.get("ipykernel.zmqshell")
        if kernel is not None and kernel.ZMQInteractiveShell.initialized():
            self._publish({"text/plain": text})
        elif getattr(sys.stderr, "isatty", bool)():
            # Spaces over the rest of the last text: not every terminal knows the erase sequence.
            self._width = max(self._width, len(text))
            _write("\r" + text.ljust(self._width))

    def erase(self) -> None:
        """Remove the line."""
        if self._output:
            self._publish({})
        if self._width:
            _write("\r" + " " * self._width + "\r")

    def _publish(self, data: dict[str, str]) -> None:
        from IPython.display import display, update_display

        if self._output:
            update_display(data, raw=True, display_id=self._output)  # type: ignore[no-untyped-call]
        else:
            self._output = uuid.uuid4().hex
            display(data, raw=True, display_id=self._output)  # type: ignore[no-untyped-call]


@contextmanager
def progress(what: str, total: float = 0) -> Iterator[Callable[[float], None]]:
    """Yields a function that takes how much of `total` is done; without a total, any number."""
    began, line = time.monotonic(), ProgressLine()

    def advance(done: float) -> None:
        text = what
        if total:
            text += f": {100 * done / total:.0f} %"
            if total > done >= total / 20:  # an earlier estimate would jump about
                passed = time.monotonic() - began
                text += f", about {seconds_text(passed * (total - done) / done)} left"
        line.show(text)

    try:
        yield advance
    finally:
        line.erase()


def _write(text: str) -> None:
    # A closed or broken stderr must not stop the work.
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(text)
        sys.stderr.flush()
