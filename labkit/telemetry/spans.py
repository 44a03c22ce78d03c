"""Spans: named stretches of time, told to every panel that runs, from anywhere in your program.

>>> heard = []
>>> with listening(heard.append):
...     with mark("epoch 1", images=60_000):
...         pass
>>> [(span.name, span.end is None) for span in heard]
[('epoch 1', True), ('epoch 1', False)]

Every listener hears of a span twice: when it begins (no end yet) and when it has ended. Times are
those of `time.monotonic`. Where nobody listens, a mark costs less than a microsecond.
"""

from __future__ import annotations

import json
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal, Self

from labkit.kinds import LabError
from labkit.telemetry.lines import Span, span_line

if TYPE_CHECKING:
    from types import TracebackType

__all__ = [
    "SPANS_TO",
    "By",
    "Mark",
    "Span",
    "begun",
    "counted",
    "end_marks",
    "forget",
    "keras_callback",
    "listen",
    "listening",
    "mark",
    "span",
    "tidy",
]

By = Literal["you", "cell", "training", "keras"]
Listener = Callable[[Span], object]

# `labkit record` names its file here, and the program that it runs adds its spans to it.
SPANS_TO = "LABKIT_SPANS_TO"

_listeners: tuple[Listener, ...] = ()
_changing = threading.Lock()
_latest = float("-inf")
_APART = 2e-6  # seconds; spans are written to the microsecond
_LONGEST = 200  # letters of a name
_open: dict[int, Mark] = {}


def listen(listener: Listener) -> None:
    """From now on `listener(span)` is called at both edges of every span, in the span's thread."""
    global _listeners  # noqa: PLW0603 (the one list of who listens; replaced, never changed)
    with _changing:
        _listeners = (*_listeners, listener)


def forget(listener: Listener) -> None:
    """The listener hears of nothing more. May be called twice."""
    global _listeners  # noqa: PLW0603
    with _changing:
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
    """A span that is going on. It ends with its block, or with `end()`; whichever comes first."""

    __slots__ = ("_heard_by", "_span")

    def __init__(self, span: Span | None, heard_by: tuple[Listener, ...]) -> None:
        self._span = span
        self._heard_by = heard_by
        if span is not None:
            _open[id(self)] = self
            _tell(heard_by, span)
            if _FILE is not None:
                _append(span)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self._span is not None:
            self._end(self._span if error is None else replace(self._span, images=None))

    def end(self, images: float | None = None) -> None:
        """Now; `images` if they are known only now. A mark ends once."""
        if self._span is None:
            return
        try:
            known = self._span.images if images is None else counted(images)
        except LabError:
            self.give_up()
            raise
        self._end(replace(self._span, images=known))

    def give_up(self) -> None:
        """End it now, without images: nobody knows how many it had seen when it was broken off."""
        if self._span is not None:
            self._end(replace(self._span, images=None))

    def _end(self, span: Span) -> None:
        # Two threads may end a mark; only the one that takes it out tells.
        if _open.pop(id(self), None) is None:
            return
        ended = replace(span, end=max(span.start, time.monotonic()))
        _tell(self._heard_by, ended)
        if _FILE is not None:
            _append(ended)


_NOBODY = Mark(None, ())


def mark(name: str, images: float | None = None, by: By = "you") -> Mark:
    """Begin a span. It ends with its block, or with its `end()`.

    >>> with mark("epoch 3", images=60_000):
    ...     pass

    Everybody who listens when it begins hears of both edges. Spans may lie in one another and may
    overlap; one that an exception leaves has ended.
    """
    if not _listeners and _FILE is None:
        return _NOBODY
    return begun(name, images, by, _listeners)


def begun(name: str, images: float | None, by: By, heard_by: tuple[Listener, ...]) -> Mark:
    """A span that begins now, and who hears of it."""
    global _latest  # noqa: PLW0603 (when the last span began, of all threads)
    images = None if images is None else counted(images)
    with _changing:
        # No two spans begin at once, however quickly they follow: the moment tells them apart.
        _latest = max(time.monotonic(), _latest + _APART)
        start = _latest
    return Mark(Span(tidy(name), start, None, images, by), heard_by)


def counted(images: Any) -> float:
    """A number of images, as a plain number; NumPy's are welcome."""
    if type(images) is not bool and isinstance(images, Real):
        number = int(images) if isinstance(images, Integral) else float(images)
        if 0 < number < float("inf"):
            return number
    raise LabError(
        f"images={images!r}: give the number of images that the span trains on, such as 60_000, "
        "or leave it out."
    )


def tidy(name: object) -> str:
    """A name that can be written anywhere: one line, no control characters, not endless.

    >>> tidy("epoch 1" + chr(10) + " of 3")
    'epoch 1 of 3'
    """
    letters = (one if one.isprintable() else " " for one in str(name)[:_LONGEST])
    return " ".join("".join(letters).split()) or "unnamed"


# The word of the lectures for the same thing.
span = mark


def end_marks(by: By) -> None:
    """End what is still open and was marked by `by`: a `fit` that was interrupted cannot do so."""
    for one in list(_open.values()):
        if one._span is not None and one._span.by == by:
            one.give_up()


def keras_callback(images: float | None = None) -> Any:
    """Give it to `model.fit(callbacks=[…])`: each epoch becomes a span, its evaluation included.

    `images` is the number of training images that an epoch sees.
    """
    images = None if images is None else counted(images)
    from keras.callbacks import Callback

    # Keras' class is untyped and loaded only here, so this one lives here too.
    class Epochs(Callback):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self._mark = _NOBODY

        def on_train_begin(self, logs: object = None) -> None:
            self._mark.end()

        def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
            self._mark.give_up()  # of an epoch that was interrupted
            self._mark = mark(f"epoch {epoch + 1}", images, by="keras")

        def on_epoch_end(self, epoch: int, logs: object = None) -> None:
            self._mark.end()

        def on_train_end(self, logs: object = None) -> None:
            self._mark.end()

    return Epochs()


def _tell(listeners: tuple[Listener, ...], span: Span) -> None:
    for listener in listeners:
        try:
            listener(span)
        except Exception as fault:  # noqa: BLE001 (a panel's fault must not end a training)
            warnings.warn(
                f"A panel could not note the span {span.name!r} ({fault!r}).",
                RuntimeWarning,
                stacklevel=4,
            )


def _leave_to_parent() -> None:
    """A child that was forked has no panel: its parent's listeners are the parent's."""
    global _listeners, _changing
    _listeners, _changing = (), threading.Lock()
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)

# Read once: the variable is set before this program starts, and looking it up costs a microsecond.
_FILE = os.environ.get(SPANS_TO) or None
_clock: float | None = None


def _append(span: Span) -> None:
    """One write to the end of the file: lines of several processes never mix."""
    global _FILE, _clock  # noqa: PLW0603 (what this process knows of the file)
    path = _FILE
    if path is None:
        return
    try:
        if _clock is None:
            with open(path, "rb") as lines:  # noqa: PTH123 (this module stays light)
                _clock = float(json.loads(lines.readline())["clock"])
        end = None if span.end is None else span.end - _clock
        placed = replace(span, start=span.start - _clock, end=end)
        out = os.open(path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(out, (span_line(placed) + "\n").encode())
        finally:
            os.close(out)
    except (OSError, ValueError, KeyError, TypeError) as fault:
        _FILE = None
        warnings.warn(
            f"Spans cannot be added to the recording {path} ({fault}), and are left out of it.",
            RuntimeWarning,
            stacklevel=4,
        )
