"""Spans: named stretches of time, announced to every panel that runs, from anywhere in a program.

>>> heard = []
>>> with listening(heard.append):
...     with span("epoch 1", images=60_000):
...         pass
>>> [(span.name, span.end is None) for span in heard]
[('epoch 1', True), ('epoch 1', False)]

A listener is called twice: when a span begins (no end yet) and when it has ended. Times are those
of `time.monotonic`. If a listener fails, standard error says so, and the program goes on.
"""

import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Self

from labkit.arguments import number
from labkit.telemetry.format import Span, line

Listener = Callable[[Span], object]

# `labkit record` names its file here, and the program that it runs appends its spans to it.
SPANS_TO = "LABKIT_SPANS_TO"

_LONGEST_NAME, _LONGEST_CELL = 200, 40  # characters
_listeners: tuple[Listener, ...] = ()
_lock = threading.Lock()


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """`listener(span)` is called at both edges of every span, in the span's thread."""
    global _listeners  # noqa: PLW0603
    with _lock:
        _listeners = (*_listeners, listener)
    try:
        yield
    finally:
        with _lock:
            _listeners = tuple(other for other in _listeners if other != listener)


class OpenSpan:
    """An open span. It ends with its block or with `end()`, whichever comes first."""

    def __init__(self, name: str, images: float | None, listeners: tuple[Listener, ...]) -> None:
        self._span = Span(one_line(name), time.monotonic(), None, _count(images))
        self._listeners = listeners
        self._announce()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, at: object) -> None:
        if error is not None:
            # How many images it had seen when it was broken off is unknown.
            self._end(None)
        self.end()

    def end(self, images: float | None = None, loss: float | None = None) -> None:
        """End the span now, with `images` and the mean `loss` if they were not known before."""
        known = None if loss is None or not math.isfinite(loss) else float(loss)  # it may diverge
        self._end(_count(images) or self._span.images, known)

    def _end(self, images: float | None, loss: float | None = None) -> None:
        if self._span.end is None:
            self._span = replace(self._span, end=time.monotonic(), images=images, loss=loss)
            self._announce()

    def _announce(self) -> None:
        for listener in self._listeners:
            try:
                listener(self._span)
            except Exception as fault:  # noqa: BLE001 (a training must go on)
                _say(f"labkit: spans are missing in the recording ({fault})")


def span(name: str, images: float | None = None) -> OpenSpan:
    """Begin a span. It ends with its block, or with its `end()`.

    >>> with span("epoch 3", images=60_000):
    ...     pass

    Spans may be nested and may overlap. An exception that leaves the block ends the span.
    """
    return OpenSpan(name, images, _listeners)


def one_line(name: object) -> str:
    """Returns a name that fits anywhere: a single line, no control characters, limited length.

    >>> one_line("epoch 1" + chr(10) + " of 3")
    'epoch 1 of 3'
    """
    letters = (c if c.isprintable() else " " for c in str(name)[:_LONGEST_NAME])
    return " ".join("".join(letters).split()) or "unnamed"


class CellSpans:
    """Announces the cells of a notebook to a listener until `unfollow()`, from the next cell on.

    `shell` is IPython's.
    """

    def __init__(self, shell: Any, listener: Listener) -> None:
        self._shell, self._listener = shell, listener
        self._cell: OpenSpan | None = None
        self._lock = threading.Lock()
        self._request = _request(shell)  # what the kernel is busy with
        self._said = time.monotonic()
        shell.events.register("pre_run_cell", self._begins)
        shell.events.register("post_run_cell", self._ends)

    def unfollow(self) -> None:
        """Announce no more cells."""
        self._shell.events.unregister("pre_run_cell", self._begins)
        self._shell.events.unregister("post_run_cell", self._ends)

    def say_busy(self) -> None:
        """Tell front ends once a second that the kernel is busy, if a cell runs. From any thread.

        JupyterLab 4.6 asks for a subshell when a page meets its first widget. ipykernel answers
        with the states busy and idle, and JupyterLab shows that idle as the kernel's.
        """
        socket = getattr(getattr(self._shell, "kernel", None), "iopub_socket", None)
        with self._lock:  # never after the idle that follows the cell
            if self._request is None or socket is None or time.monotonic() - self._said < 1:
                return
            self._said = time.monotonic()
            busy = {"execution_state": "busy"}
            self._shell.kernel.session.send(socket, "status", busy, parent=self._request)

    def _begins(self, info: Any) -> None:
        with self._lock:
            self._request = _request(self._shell)
        # IPython has counted on, but In has not grown yet.
        name = cell_name(info.raw_cell or "", len(self._shell.user_ns["In"]))
        self._cell = OpenSpan(name, None, (self._listener,))

    def _ends(self, _result: Any) -> None:
        with self._lock:
            self._request = None
        if self._cell is not None:
            self._cell.end()


def _request(shell: Any) -> Any:
    return shell.get_parent() if hasattr(shell, "get_parent") else None


def cell_name(source: str, prompt: int) -> str:
    """Returns a cell's number and its first line that is not an import or a comment.

    >>> cell_name("import labkit; job.train(epochs=3, batch_size=64)", 7)
    '[7] import labkit; job.train(epochs=3, batc…'
    """
    lines = [line.strip() for line in source.splitlines() if line.strip()]
    code = [line for line in lines if not line.startswith(("#", "import ", "from ", "%"))]
    line = (code or lines or [""])[0]
    if len(line) > _LONGEST_CELL:
        line = line[: _LONGEST_CELL - 1].rstrip() + "…"
    return f"[{prompt}] {line}".rstrip()


def _count(images: Any) -> float | None:
    if images is None:
        return None
    count = number("images", images, above=0)
    return int(count) if count.is_integer() else count


@cache
def _say(fault: str) -> None:
    """Print a fault once, if it can be printed at all."""
    with suppress(Exception):
        print(fault, file=sys.stderr, flush=True)


def _append(span: Span) -> None:
    """Append a span to the file of `labkit record`, in a single write: processes share the file."""
    path = Path(os.environ[SPANS_TO])
    with path.open("rb") as lines:
        clock = float(json.loads(lines.readline())["clock"])
    end = None if span.end is None else span.end - clock
    text = line(replace(span, start=span.start - clock, end=end))
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND), "wb", buffering=0) as out:
        out.write(f"{text}\n".encode())


if os.environ.get(SPANS_TO):
    _listeners = (_append,)
