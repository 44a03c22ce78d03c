"""The one progress line: on stderr, in place, only when something takes long, gone when it is done.

>>> with Progress("epoch 1 of 5", total=1875) as line:
...     line.update(100)
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

from labkit.kinds import seconds_text

__all__ = ["Progress"]

PATIENCE = 1.0  # seconds before a line appears at all
INTERVAL = 0.25  # seconds between two writings


class Progress:
    """How far something is and about how long it will still take."""

    def __init__(
        self,
        what: str,
        total: float,
        *,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._what, self._total = what, max(float(total), 1e-12)
        self._stream = stream or sys.stderr
        self._clock = clock
        self._on = os.environ.get("LABKIT_PROGRESS", "on") != "off"
        self._width = 0

    def __enter__(self) -> Self:
        self._began = self._written = self._clock()
        return self

    def update(self, done: float, note: str = "") -> None:
        """Say that `done` of the total is behind us."""
        now = self._clock()
        if not self._on or now - self._began < PATIENCE or now - self._written < INTERVAL:
            return
        self._written = now
        share = min(max(done / self._total, 0.0), 1.0)
        left = (now - self._began) * (1 - share) / share if share else float("inf")
        remaining = f"about {seconds_text(left)} left" if share else "starting"
        remaining = "finishing" if share == 1 else remaining
        self._write(f"{self._what}: {100 * share:3.0f} %, {remaining}{note and ', ' + note}")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._width:
            self._write("")
            self._stream.write("\r")
            self._stream.flush()

    def _write(self, text: str) -> None:
        # Blanks over the rest of the last line: not every front end knows the erase sequence.
        self._stream.write("\r" + text.ljust(self._width))
        self._stream.flush()
        self._width = len(text)
