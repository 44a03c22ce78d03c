"""Messages under way: how a send finds its receive, and in which step each message travels."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from labkit.collectives.records import Array, Call, Message
from labkit.collectives.source import Lines, SourceLine

__all__ = [
    "ANY_SOURCE",
    "ANY_TAG",
    "PROC_NULL",
    "End",
    "Mailboxes",
    "Matched",
    "OpenCall",
    "constant",
    "count_steps",
]


class Constant(int):
    """A number that stands for something; in a rank of a real MPI it becomes that MPI's own."""

    name: str

    def __reduce__(self) -> tuple[Any, ...]:
        return constant, (self.name,)


def _constant(value: int, name: str) -> Constant:
    made = Constant(value)
    made.name = name
    return made


# No MPI library uses these numbers, so that its own constants and these can both be understood.
ANY_SOURCE = _constant(-9001, "ANY_SOURCE")
PROC_NULL = _constant(-9002, "PROC_NULL")
ANY_TAG = _constant(-9003, "ANY_TAG")
OURS = {one.name: one for one in (ANY_SOURCE, PROC_NULL, ANY_TAG)}

# What mpiexec of MPICH and of Open MPI tells a rank about itself.
_STARTED_BY_MPIEXEC = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")


def constant(name: str) -> int:
    """ANY_SOURCE, ANY_TAG or PROC_NULL: MPI's own number in a rank that mpiexec has started."""
    if not any(variable in os.environ for variable in _STARTED_BY_MPIEXEC):
        return OURS[name]
    try:
        mpi: Any = importlib.import_module("mpi4py.MPI")
    except ImportError:
        return OURS[name]
    return int(getattr(mpi, name))


@dataclass(slots=True, eq=False)
class OpenCall:
    """A call that a rank has entered; `number` is known when it comes back, `step` at the end."""

    rank: int
    name: str
    at: SourceLine
    lines: Lines = field(repr=False)
    posts: list[End] = field(default_factory=list)
    awaits: list[End] = field(default_factory=list)
    barrier: int | None = None
    number: int = -1
    step: int = 0

    @property
    def line(self) -> str:
        """`line 7`."""
        return self.lines.words(self.at)

    def recorded(self) -> Call:
        """The call as plain data."""
        begins, awaits = _numbers(self.posts), _numbers(self.awaits)
        return Call(
            self.number, self.rank, self.name, self.at.place, self.step,
            begins, awaits, self.barrier,
        )  # fmt: skip


@dataclass(slots=True, eq=False)
class End:
    """One end of a message: a send or a receive that a call has posted."""

    call: OpenCall
    sends: bool
    peer: int  # the other rank, or ANY_SOURCE
    tag: int
    flat: Array | None  # the program's own memory; None when the call has let go of it
    held: Array | None  # what that memory must hold until the message is waited for
    region: tuple[int, int] | None = None  # the elements of its rank's buffer that it is
    eager: bool = False  # a send that does not wait for its receiver
    late: bool = False  # of Isend or Irecv, to be waited for
    before: Array | None = None  # what the memory held when an Irecv was posted
    waited: bool = False
    message: Matched | None = None

    @property
    def rank(self) -> int:
        """Whose end it is."""
        return self.call.rank

    @property
    def is_done(self) -> bool:
        """Whether nothing has to be waited for any more."""
        return self.eager or self.message is not None

    @property
    def words(self) -> str:
        """`Send to rank 1 (line 7)`."""
        way = "to" if self.sends else "from"
        other = f"rank {self.peer}" if self.peer >= 0 else "any rank"
        return f"{self.call.name} {way} {other} ({self.call.line})"

    def keeps_its_memory(self) -> bool:
        """Whether the memory still holds what it held when a non-blocking call posted it."""
        if not self.late or self.held is None or self.flat is None:
            return True
        return self.flat.tobytes() == self.held.tobytes()

    def let_go(self) -> None:
        """The program may do with the memory what it likes."""
        # A message that did not wait for its receiver waits itself, as a copy.
        self.flat = self.held if self.message is None else None
        self.held = self.flat
        self.before = None


@dataclass(slots=True, eq=False)
class Matched:
    """A send and the receive that took it; `data` is on its way until the receiver has it."""

    number: int
    send: End
    receive: End
    nbytes: int
    count: int
    data: Array | None
    step: int = 0

    def recorded(self) -> Message:
        """The message as plain data."""
        into = self.receive.region
        return Message(
            self.number, self.send.rank, self.receive.rank, self.send.tag, self.nbytes, self.count,
            self.step, self.send.region, into and (into[0], into[0] + self.count),
            self.send.call.number, self.receive.call.number,
        )  # fmt: skip


class Mailboxes:
    """What each rank has been offered and what it looks for, in the order in which it came."""

    def __init__(self, ranks: int) -> None:
        self.matched: list[Matched] = []
        self.offered: list[list[End]] = [[] for _ in range(ranks)]  # by receiver
        self.wanted: list[list[End]] = [[] for _ in range(ranks)]

    def post(self, end: End) -> End | None:
        """The other end, the first that fits, if it has been posted; else this one waits for it."""
        to = end.peer if end.sends else end.rank
        there, mine = self.offered[to], self.wanted[to]
        if end.sends:
            there, mine = mine, there
        for index, other in enumerate(there):
            send, receive = (end, other) if end.sends else (other, end)
            if receive.peer in (send.rank, ANY_SOURCE) and receive.tag in (send.tag, ANY_TAG):
                del there[index]
                return other
        mine.append(end)
        return None

    def match(self, send: End, receive: End) -> None:
        """The two ends belong to one message."""
        assert send.flat is not None
        send.message = receive.message = Matched(
            len(self.matched), send, receive, send.flat.nbytes, send.flat.size, send.held
        )
        self.matched.append(send.message)


def count_steps(calls: Sequence[OpenCall], messages: Sequence[Matched], ranks: int) -> None:
    """Give every message its step, and every call the step at which it comes back.

    A clock on which each message takes one step: it travels as soon as both ends are posted, its
    sender sends nothing else and its receiver receives nothing else; first posted, first served,
    of those posted together the lowest sender's first. It does not depend on which rank the
    simulator happens to run first.
    """
    clock = _StepClock(calls, messages, ranks)
    clock.advance(range(ranks))
    step, waiting = 0, clock.take_ready()
    while waiting:
        step += 1
        sending, receiving, rest = set(), set(), []
        for message in waiting:
            source, dest = message.send.rank, message.receive.rank
            if source in sending or dest in receiving:
                rest.append(message)
                continue
            sending.add(source)
            receiving.add(dest)
            message.step = step
        clock.advance(sending | receiving)
        waiting = rest + clock.take_ready()


class _StepClock:
    """How far each rank has come with the messages that have a step."""

    def __init__(self, calls: Sequence[OpenCall], messages: Sequence[Matched], ranks: int) -> None:
        self._calls: list[list[OpenCall]] = [[] for _ in range(ranks)]
        for call in calls:
            self._calls[call.rank].append(call)
        self._next = [0] * ranks
        self._entered = [False] * ranks
        self._now = [0] * ranks
        self._posted = [0] * len(messages)  # ends of each message
        self._at_barrier = 0
        self._ready: list[Matched] = []

    def take_ready(self) -> list[Matched]:
        """The messages with two ends that have become so since the last time, in their order."""
        ready, self._ready = self._ready, []
        return sorted(ready, key=lambda one: (one.send.rank, one.send.call.number))

    def advance(self, ranks: Sequence[int] | range | set[int]) -> None:
        """As far as these ranks get."""
        todo = sorted(ranks)
        while todo:
            rank = todo.pop()
            while self._next[rank] < len(self._calls[rank]):
                call = self._calls[rank][self._next[rank]]
                if not self._entered[rank]:
                    self._enter(rank, call)
                    if call.barrier is not None and self._at_barrier == len(self._now):
                        todo += self._leave_barrier()
                        break
                if call.barrier is not None or not self._comes_back(rank, call):
                    break

    def _enter(self, rank: int, call: OpenCall) -> None:
        self._entered[rank] = True
        self._at_barrier += call.barrier is not None
        for end in call.posts:
            message = end.message
            if message is not None:
                self._posted[message.number] += 1
                if self._posted[message.number] == 2:
                    self._ready.append(message)

    def _comes_back(self, rank: int, call: OpenCall) -> bool:
        steps = [end.message.step for end in call.awaits if end.message is not None]
        if 0 in steps:
            return False
        call.step = self._now[rank] = max([self._now[rank], *steps])
        self._next[rank] += 1
        self._entered[rank] = False
        return True

    def _leave_barrier(self) -> range:
        """All ranks go on together, when the latest has come."""
        latest, self._at_barrier = max(self._now), 0
        for rank, calls in enumerate(self._calls):
            calls[self._next[rank]].step = self._now[rank] = latest
            self._next[rank] += 1
            self._entered[rank] = False
        return range(len(self._now))


def _numbers(ends: list[End]) -> tuple[int, ...]:
    return tuple([end.message.number for end in ends if end.message is not None])
