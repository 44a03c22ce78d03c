"""Spans: named stretches of time, announced to every panel that runs, from anywhere in a program.

>>> heard = []
>>> with listening(heard.append):
...     with mark("epoch 1", images=60_000):
...         pass
>>> [(span.name, span.end is None) for span in heard]
[('epoch 1', True), ('epoch 1', False)]

A listener is called twice: when a span begins (no end yet) and when it has ended. Times are those
of `time.monotonic`. Where nothing listens, a mark costs less than a microsecond.
"""

from __future__ import annotations

import json
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from labkit.arguments import number
from labkit.telemetry.format import By, Span, span_line

if TYPE_CHECKING:
    from types import TracebackType

__all__ = [
    "SPANS_TO",
    "Cells",
    "Mark",
    "Span",
    "begin",
    "cell_name",
    "forget",
    "keras_callback",
    "listen",
    "listening",
    "mark",
    "one_line",
]

Listener = Callable[[Span], object]

# `labkit record` names its file here, and the program that it runs appends its spans to it.
SPANS_TO = "LABKIT_SPANS_TO"

_LONGEST_NAME, _LONGEST_CELL = 200, 40  # characters
_listeners: tuple[Listener, ...] = ()
_lock = threading.RLock()  # the garbage collector may end a panel in the middle of anything
_latest = float("-inf")
_APART = 2e-6  # seconds; spans are written to the microsecond
_epochs: dict[int, Mark] = {}  # the open epoch of Keras in each thread


def listen(listener: Listener) -> None:
    """From now on `listener(span)` is called at both edges of every span, in the span's thread."""
    global _listeners  # noqa: PLW0603
    with _lock:
        _listeners = (*_listeners, listener)


def forget(listener: Listener) -> None:
    """The listener is called no more. May be called twice."""
    global _listeners  # noqa: PLW0603
    with _lock:
        _listeners = tuple(one for one in _listeners if one != listener)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Listen for as long as the block runs."""
    listen(listener)
    try:
        yield
    finally:
        forget(listener)


class Mark:
    """A span that is open. It ends with its block, or with `end()`; whichever comes first."""

    __slots__ = ("_listeners", "_lock", "_span")

    def __init__(self, span: Span | None, listeners: tuple[Listener, ...]) -> None:
        self._span, self._listeners = span, listeners
        self._lock = threading.Lock()
        if span is not None:
            _announce(listeners, span)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if error is None:
            self.end()
        else:
            self.give_up()

    def end(self, images: float | None = None) -> None:
        """Now; `images` if they are known only now. A mark ends once."""
        known = None if images is None else _count(images)
        span = self._take()
        if span is not None:
            self._close(span if known is None else replace(span, images=known))

    def give_up(self) -> None:
        """End it now, without images: how many it had seen when it was broken off is unknown."""
        span = self._take()
        if span is not None:
            self._close(replace(span, images=None))

    def _take(self) -> Span | None:
        with self._lock:  # two threads may end a mark
            span, self._span = self._span, None
            return span

    def _close(self, span: Span) -> None:
        _announce(self._listeners, replace(span, end=max(span.start, time.monotonic())))


_DISABLED = Mark(None, ())


def mark(name: str, images: float | None = None, by: By = "you") -> Mark:
    """Begin a span. It ends with its block, or with its `end()`.

    >>> with mark("epoch 3", images=60_000):
    ...     pass

    Spans may lie in one another and may overlap; one that an exception leaves has ended.
    """
    if not _listeners and _file is None:
        return _DISABLED
    return begin(name, images, by, _listeners)


def begin(name: str, images: float | None, by: By, listeners: tuple[Listener, ...]) -> Mark:
    """A span that begins now, announced to these listeners only."""
    global _latest  # noqa: PLW0603
    images = None if images is None else _count(images)
    with _lock:
        # No two spans begin at the same time: name and start identify a span.
        _latest = start = max(time.monotonic(), _latest + _APART)
    return Mark(Span(one_line(name), start, None, images, by), listeners)


def one_line(name: object) -> str:
    """A name that can be written anywhere: one line, no control characters, of limited length.

    >>> one_line("epoch 1" + chr(10) + " of 3")
    'epoch 1 of 3'
    """
    letters = (one if one.isprintable() else " " for one in str(name)[:_LONGEST_NAME])
    return " ".join("".join(letters).split()) or "unnamed"


def keras_callback(images: float | None = None) -> Any:
    """Give it to `model.fit(callbacks=[…])`: each epoch becomes a span, its evaluation included.

    `images` is the number of training images that an epoch sees.
    """
    images = None if images is None else _count(images)
    from keras.callbacks import Callback

    class Epochs(Callback):  # type: ignore[misc]  # Keras is untyped, and loaded only here
        def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
            _end_epoch()  # one that was interrupted
            _epochs[threading.get_ident()] = mark(f"epoch {epoch + 1}", images, by="keras")

        def on_epoch_end(self, epoch: int, logs: object = None) -> None:
            open_epoch = _epochs.pop(threading.get_ident(), None)
            if open_epoch is not None:
                open_epoch.end()

        def on_train_end(self, logs: object = None) -> None:
            _end_epoch()

    return Epochs()


def _end_epoch() -> None:
    """End the epoch that a `fit` in this thread has left open: one that was interrupted."""
    epoch = _epochs.pop(threading.get_ident(), None)
    if epoch is not None:
        epoch.give_up()


class Cells:
    """Marks each cell of a notebook for a listener, from now on until `unfollow()`.

    `shell` is IPython's; the cell in which this is made is not marked.
    """

    def __init__(self, shell: Any, listener: Listener) -> None:
        self._shell, self._listener = shell, listener
        self._running: dict[int, Mark] = {}  # by thread: cells of subshells run beside the main one
        self._lock = threading.Lock()
        self._request = _request(shell)  # what the kernel is busy with
        self._said = time.monotonic()
        shell.events.register("pre_run_cell", self._begins)
        shell.events.register("post_run_cell", self._ends)

    def unfollow(self) -> None:
        """Mark no more cells. May be called twice."""
        with suppress(ValueError):  # it was unregistered before
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
        entered = self._shell.user_ns.get("In")
        # IPython has counted on, but In has not grown yet.
        prompt = len(entered) if isinstance(entered, list) else self._shell.execution_count
        name = cell_name(getattr(info, "raw_cell", None) or "", prompt)
        with self._lock:
            self._request = _request(self._shell)
        self._running[threading.get_ident()] = begin(name, None, "cell", (self._listener,))

    def _ends(self, _result: Any) -> None:
        with self._lock:
            self._request = None
        cell = self._running.pop(threading.get_ident(), None)
        if cell is not None:
            cell.end()
        # Only what this cell has opened: a `fit` in another thread goes on.
        _end_epoch()


def _request(shell: Any) -> Any:
    return shell.get_parent() if hasattr(shell, "get_parent") else None


def cell_name(source: str, prompt: int) -> str:
    """The number of a cell and its first line that is not an import or a comment.

    >>> cell_name("import labkit; job.train(epochs=3)", 7)
    '[7] import labkit; job.train(epochs=3)'
    """
    lines = [line.strip() for line in source.splitlines() if line.strip()]
    code = [line for line in lines if not line.startswith(("#", "import ", "from ", "%"))]
    line = (code or lines or [""])[0]
    if len(line) > _LONGEST_CELL:
        line = line[: _LONGEST_CELL - 1].rstrip() + "…"
    return f"[{prompt}] {line}".rstrip()


def _count(images: Any) -> float:
    count = number("images", images, above=0)
    return int(count) if count.is_integer() else count


def _announce(listeners: tuple[Listener, ...], span: Span) -> None:
    for listener in listeners:
        try:
            listener(span)
        except Exception as fault:  # noqa: BLE001 (a panel's fault must not end a training)
            warnings.warn(
                f"A panel could not note the span {span.name!r} ({fault!r}).",
                RuntimeWarning,
                stacklevel=4,
            )
    if _file is not None:
        _append(_file, span)


def _leave_to_parent() -> None:
    """In a child that was forked: its parent's panels are not its own."""
    global _listeners, _lock
    _listeners, _lock = (), threading.RLock()
    _epochs.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)

# Read once: it is set before the program starts.
_file = os.environ.get(SPANS_TO) or None


def _append(path: str, span: Span) -> None:
    """One write to the end of the file: lines of several processes do not mix."""
    global _file  # noqa: PLW0603
    try:
        with Path(path).open("rb") as lines:
            clock = float(json.loads(lines.readline())["clock"])
        end = None if span.end is None else span.end - clock
        line = span_line(replace(span, start=span.start - clock, end=end))
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND), "wb", buffering=0) as out:
            out.write(f"{line}\n".encode())
    except (OSError, ValueError, KeyError, TypeError) as fault:
        _file = None
        warnings.warn(
            f"Spans cannot be added to the recording {path} ({fault}), and are left out of it.",
            RuntimeWarning,
            stacklevel=4,
        )
