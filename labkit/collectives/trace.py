"""What a run of N ranks left behind: every call, every message, every change, as plain data.

>>> trace = run(programs.ring_all_reduce, ranks=4)      # doctest: +SKIP
>>> trace
Trace(ring_all_reduce: 4 ranks, 24 messages, 6 steps, 192 B from the busiest rank)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from labkit.kinds import LabError, bytes_text
from labkit.plain import dump, load, stored

if TYPE_CHECKING:
    from labkit.collectives.quantities import Seconds
    from labkit.collectives.story import Story
    from labkit.collectives.verdict import Verdict

__all__ = ["Call", "Message", "Place", "Source", "State", "Trace", "Values", "values"]


@stored
@dataclass(frozen=True)
class Values:
    """An array as plain data."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes = field(repr=False)

    def array(self) -> np.ndarray:
        """The array, read-only."""
        return np.frombuffer(self.data, _dtype(self.dtype)).reshape(self.shape)


@stored
@dataclass(frozen=True)
class Source:
    """A function of the program that made calls; `first` is its first line in its file or cell."""

    name: str
    first: int
    text: str


@stored
@dataclass(frozen=True)
class Place:
    """A line of `trace.sources[source]`, counted from 1 within its text."""

    source: int
    line: int


@stored
@dataclass(frozen=True)
class Message:
    """Bytes that went from one rank to another in one step.

    `sent_from` and `into` are elements (start, stop) of the sender's and the receiver's own flat
    buffer; None is other memory, such as a scratch array. `sent_by` and `received_by` are the
    numbers of the calls that posted the two ends.
    """

    number: int
    source: int
    dest: int
    tag: int
    nbytes: int
    count: int
    step: int
    sent_from: tuple[int, int] | None
    into: tuple[int, int] | None
    sent_by: int
    received_by: int


@stored
@dataclass(frozen=True)
class Call:
    """A call of a rank, numbered in the order in which calls came back.

    It posts an end of the messages in `begins` and comes back when those in `awaits` are complete;
    `step` is its rank's clock then. `barrier` says which barrier it is, for those that are one.
    """

    number: int
    rank: int
    name: str
    place: Place | None
    step: int
    begins: tuple[int, ...]
    awaits: tuple[int, ...]
    barrier: int | None


@stored
@dataclass(frozen=True)
class State:
    """A run of elements, from `start`, that a rank's buffer held anew at this step of its clock."""

    step: int
    rank: int
    start: int
    data: bytes = field(repr=False)


@stored
@dataclass(frozen=True, repr=False)
class Trace:
    """A program that ran: who sent what to whom, in which step, and what it made of the data.

    Steps count as if each rank could send one message and receive one at a time. The buffer of a
    rank after step s is what it was given, with all its states up to step s laid over it in order.
    """

    program: str
    ranks: int
    options: dict[str, str]
    sources: tuple[Source, ...]
    calls: tuple[Call, ...]
    messages: tuple[Message, ...]
    given: tuple[Values, ...]
    left: tuple[Values, ...]
    states: tuple[State, ...]
    steps: int
    complete: bool = True  # False: the changes were too many to keep, and `states` is empty
    note: str = ""  # what was odd about the run, for the verdict to say
    # Runs the program again on other inputs; a trace from a file cannot.
    _again: Callable[[list[np.ndarray]], Trace] | None = field(
        default=None, compare=False, repr=False
    )

    @cached_property
    def inputs(self) -> list[np.ndarray]:
        """Each rank's buffer before the run."""
        return [values.array() for values in self.given]

    @cached_property
    def outputs(self) -> list[np.ndarray]:
        """Each rank's buffer after the run."""
        return [values.array() for values in self.left]

    @property
    def itemsize(self) -> int:
        """Bytes of one element of the buffers."""
        return _dtype(self.given[0].dtype).itemsize

    @cached_property
    def bytes_sent(self) -> tuple[int, ...]:
        """Bytes that each rank sent."""
        return self._per_rank((m.source, m.nbytes) for m in self.messages)

    @cached_property
    def bytes_received(self) -> tuple[int, ...]:
        """Bytes that each rank received."""
        return self._per_rank((m.dest, m.nbytes) for m in self.messages)

    @cached_property
    def messages_sent(self) -> tuple[int, ...]:
        """Messages that each rank sent."""
        return self._per_rank((m.source, 1) for m in self.messages)

    def links(self) -> dict[tuple[int, int], int]:
        """Bytes that went over each pair (source, dest)."""
        total: dict[tuple[int, int], int] = {}
        for message in self.messages:
            pair = message.source, message.dest
            total[pair] = total.get(pair, 0) + message.nbytes
        return dict(sorted(total.items()))

    def check(self, collective: str, op: str | None = None, **keywords: Any) -> Verdict:
        """Whether the run did what the collective promises; when not, where and what is wrong."""
        from labkit.collectives.verdict import check

        return check(self, collective, op=op, **keywords)

    def cost(self, *arguments: Any, **keywords: Any) -> Seconds:
        """How long the run would take on given links, modelled message by message."""
        from labkit.collectives.pricing import timed

        return timed(self, *arguments, **keywords).seconds

    def timed(self, *arguments: Any, **keywords: Any) -> Any:
        """When each message would begin and end on given links, modelled."""
        from labkit.collectives.pricing import timed

        return timed(self, *arguments, **keywords)

    def story(self, op: str | None = None) -> Story:
        """Who holds whose contribution after each step."""
        from labkit.collectives.story import story

        return story(self, op=op)

    def figure(self, step: int | None = None) -> Any:
        """A picture of who holds what: after one step, or before and after the run."""
        from labkit.views.collective_figure import figure

        return figure(self, step=step)

    def timeline(self, *arguments: Any, **keywords: Any) -> Any:
        """A picture of when each rank sends, receives, works and waits."""
        from labkit.views.collective_figure import timeline

        return timeline(self, *arguments, **keywords)

    def player(self, **keywords: Any) -> Any:
        """The run as an animation that plays in the notebook."""
        from labkit.collectives.playing import player

        return player(self, **keywords)

    def to_chrome(self, path: str | Path, **keywords: Any) -> Path:
        """Write the run as a trace that chrome://tracing and Perfetto open."""
        from labkit.collectives.chrome import to_chrome

        return to_chrome(self, path, **keywords)

    def save(self, path: str | Path) -> Path:
        """Write the trace to a JSON file; `Trace.load(path)` reads it back."""
        path = Path(path)
        try:
            path.write_text(dump(self), encoding="utf-8")
        except OSError as fault:
            raise LabError(
                f"{path} cannot be written: {fault.strerror}. Give the path of a file in a folder "
                "that exists."
            ) from fault
        return path

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """The trace that `save` wrote."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as fault:
            raise LabError(f"{path} cannot be read: {fault}. Give the path of a trace.") from fault
        trace = load(text)
        if not isinstance(trace, cls):
            raise LabError(f"{path} holds a {type(trace).__name__}, and no trace. Give another.")
        return trace

    def __repr__(self) -> str:
        busiest = bytes_text(max(self.bytes_sent, default=0))
        counts = (_counted(self.ranks, "rank"), _counted(len(self.messages), "message"))
        return (
            f"Trace({self.program}: {', '.join(counts)}, {_counted(self.steps, 'step')}, "
            f"{busiest} from the busiest rank)"
        )

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        """The animation, with the one line for whoever only reads text."""
        shown = self.player()._repr_mimebundle_(include, exclude)
        bundle, metadata = shown if isinstance(shown, tuple) else (shown, {})
        return {**bundle, "text/plain": repr(self)}, metadata

    def _per_rank(self, parts: Any) -> tuple[int, ...]:
        total = [0] * self.ranks
        for rank, amount in parts:
            total[rank] += amount
        return tuple(total)


def values(array: np.ndarray) -> Values:
    """The array's content, as plain data."""
    text = array.dtype.str if array.dtype.kind != "V" else array.dtype.name
    return Values(text, array.shape, array.tobytes())


def _dtype(text: str) -> np.dtype[Any]:
    try:
        dtype: np.dtype[Any] = np.dtype(text)
    except TypeError:
        import ml_dtypes  # bfloat16 and its kind are known to numpy by this library alone

        dtype = np.dtype(getattr(ml_dtypes, text))
    return dtype


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"
