"""What a run of N ranks left behind, as plain data: every call, every message, every change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeAlias

import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True)
class ProgramFunction:
    """A function of the program that made calls; `first` is its first line in its file or cell."""

    name: str
    first: int
    text: str


@dataclass(frozen=True)
class Place:
    """A line of `record.sources[source]`, counted from 1 within its text."""

    source: int
    line: int


@dataclass(frozen=True)
class Message:
    """Bytes that went from one rank to another in one step, numbered as the two ends met.

    `sent_from` and `into` are elements (start, stop) of the sender's and the receiver's buffer;
    None is other memory, such as a scratch array. `sent_by` and `received_by` are the numbers of
    the calls that posted the two ends.
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


@dataclass(frozen=True)
class Call:
    """A call of a rank, numbered in the order in which calls returned.

    It posts an end of the messages in `begins` and returns when those in `awaits` are complete;
    `step` is the last step that its rank has waited for by then. The ranks' calls that a
    Barrier or a Split waits for have one number, `barrier`. `library` names the collective of MPI
    or the program of labkit that made the call, and on how many ranks.
    """

    number: int
    rank: int
    name: str
    place: Place | None
    step: int
    begins: tuple[int, ...]
    awaits: tuple[int, ...]
    barrier: int | None
    library: tuple[str, int] | None = None


@dataclass(frozen=True)
class State:
    """Elements from `start` on that a rank's buffer held anew after a step."""

    step: int
    rank: int
    start: int
    data: bytes = field(repr=False)


@dataclass(frozen=True, repr=False)
class Record:
    """A program that ran: who sent what to whom, in which step, and what it made of the data.

    In a step a rank sends at most one message and receives at most one. The buffer of a rank after
    step s is what it was given, with all its states up to step s laid over it in order.
    """

    program: str
    ranks: int
    options: dict[str, str]
    sources: tuple[ProgramFunction, ...]
    calls: tuple[Call, ...]
    messages: tuple[Message, ...]
    inputs: tuple[Array, ...] = field(compare=False)  # each rank's buffer before the run
    outputs: tuple[Array, ...] = field(compare=False)  # and after it
    again: Callable[..., Record] = field(compare=False)  # runs it on other inputs
    states: tuple[State, ...]
    steps: int
    complete: bool = True  # False: the changes were too many to keep, and `states` is empty
    op: str | None = None  # the reduction that the program was given as its option `op`
    root: int = 0  # the rank that it was given as its option `root`
    note: str = ""  # what was odd about the run

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

    def _per_rank(self, parts: Iterable[tuple[int, int]]) -> tuple[int, ...]:
        total = [0] * self.ranks
        for rank, amount in parts:
            total[rank] += amount
        return tuple(total)


def chunk_bounds(size: int, parts: int) -> list[tuple[int, int]]:
    """Returns where the chunks of `np.array_split` begin and end.

    >>> chunk_bounds(10, 4)
    [(0, 3), (3, 6), (6, 8), (8, 10)]
    """
    short, longer = divmod(size, parts)
    ends = [short * part + min(part, longer) for part in range(parts + 1)]
    return list(pairwise(ends))


def listed(items: Sequence[object]) -> str:
    """Items in a sentence.

    >>> listed([1, 2, 3])
    '1, 2 and 3'
    """
    words = [str(item) for item in items]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
