"""Messages under way: their ends, the calls that post them, and the step in which each travels."""

from __future__ import annotations

import importlib.util
import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from labkit.collectives.records import Array, Call, Message
from labkit.collectives.source import SourceLine

__all__ = [
    "ANY_SOURCE",
    "ANY_TAG",
    "PROC_NULL",
    "End",
    "Mailboxes",
    "OpenCall",
    "count_steps",
]


# No MPI library has these numbers: in MPICH PROC_NULL is -1, as is rank - 1 of rank 0.
OURS = {"ANY_SOURCE": -9001, "PROC_NULL": -9002, "ANY_TAG": -9003}
# What mpiexec of MPICH and of Open MPI, and srun, tell a rank about itself.
STARTED_BY_MPI = {"PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK"}


class Constant(int):
    """A number that becomes that of a real MPI when it comes to one of its ranks."""

    def __reduce__(self) -> tuple[Any, ...]:
        return constant, (next(name for name, number in OURS.items() if number == self),)


def constant(name: str) -> int:
    """ANY_SOURCE, PROC_NULL or ANY_TAG: MPI's own number in a rank that mpiexec has started."""
    if STARTED_BY_MPI & os.environ.keys() and importlib.util.find_spec("mpi4py"):
        return int(getattr(importlib.import_module("mpi4py.MPI"), name))
    return Constant(OURS[name])


ANY_SOURCE, PROC_NULL, ANY_TAG = map(constant, OURS)


@dataclass(slots=True, eq=False)
class OpenCall:
    """A call that a rank has made; `number` is known when it returns, `step` after the run."""

    rank: int
    name: str
    at: SourceLine
    posts: list[End] = field(default_factory=list)
    awaits: list[End] = field(default_factory=list)
    pending: list[End] = field(default_factory=list)  # ends that it waits for, all or one
    barrier: int | None = None
    number: int = -1
    step: int = 0

    @property
    def words(self) -> str:
        """`Rank 0's Send (line 7)`."""
        return f"Rank {self.rank}'s {self.name} ({self.at.text})"

    def recorded(self) -> Call:
        """The call as plain data."""
        begins = tuple(end.message.number for end in self.posts)
        awaits = tuple(end.message.number for end in self.awaits)
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
    memory: Array | None  # the program's own; None when the call has let go of it
    region: tuple[int, int] | None  # the elements of its rank's buffer that it is
    count: int
    nbytes: int
    held: Array | None = None  # what the memory must hold until the message is waited for
    before: Array | None = None  # what it held when an Irecv was posted
    data: Array | None = None  # what a receive has been sent
    eager: bool = False  # a send that does not wait for its receiver
    late: bool = False  # of Isend or Irecv, to be waited for
    waited: bool = False
    other: End | None = None  # the end that it was matched with
    number: int = -1  # of the message, here and below in its send
    step: int = 0

    @property
    def rank(self) -> int:
        """Whose end it is."""
        return self.call.rank

    @property
    def is_done(self) -> bool:
        """Whether nothing has to be waited for any more."""
        return self.eager or self.other is not None

    @property
    def message(self) -> End:
        """The message's send, which stands for the message."""
        return self if self.sends or self.other is None else self.other

    @property
    def words(self) -> str:
        """`Send to rank 1 (line 7)`."""
        other = f"rank {self.peer}" if self.peer >= 0 else "any rank"
        return f"{self.call.name} {'to' if self.sends else 'from'} {other} ({self.call.at.text})"

    def recorded(self) -> Message:
        """A matched send as plain data."""
        assert self.other is not None
        into = self.other.region
        return Message(
            self.number, self.rank, self.other.rank, self.tag, self.nbytes, self.count,
            self.step, self.region, into and (into[0], into[0] + self.count),
            self.call.number, self.other.call.number,
        )  # fmt: skip


class Mailboxes:
    """The ends that have not found each other yet, by receiving rank, in the order of posting."""

    def __init__(self, ranks: int) -> None:
        self.messages: list[End] = []  # the sends that were matched
        self.offered: list[list[End]] = [[] for _ in range(ranks)]
        self.wanted: list[list[End]] = [[] for _ in range(ranks)]

    def post(self, end: End) -> tuple[End, End] | None:
        """The send and the receive that now make a message, if the other end is there."""
        to = end.peer if end.sends else end.rank
        mine, theirs = self.wanted[to], self.offered[to]
        if end.sends:
            mine, theirs = theirs, mine
        for index, other in enumerate(theirs):
            send, receive = (end, other) if end.sends else (other, end)
            if receive.peer in (send.rank, ANY_SOURCE) and receive.tag in (send.tag, ANY_TAG):
                del theirs[index]
                send.other, receive.other = receive, send
                self.messages.append(send)
                return send, receive
        mine.append(end)
        return None


def count_steps(calls: Sequence[OpenCall], ranks: int) -> None:
    """Give every message its step, and every call the step at which it returns.

    A clock on which each message takes one step: it travels as soon as both ends are posted, its
    sender sends nothing else and its receiver receives nothing else; first posted, first served,
    of those posted together the lowest sender's first. So the steps do not depend on the order in
    which the simulator happens to run the ranks.
    """
    todo: list[list[OpenCall]] = [[] for _ in range(ranks)]
    for call in reversed(calls):
        todo[call.rank].append(call)
    now = [0] * ranks
    posted: Counter[End] = Counter()  # how many ends of each message, until it has both
    arrived: defaultdict[int | None, list[int]] = defaultdict(list)  # when ranks came to a barrier
    waiting: list[End] = []

    def enter(rank: int) -> None:
        for call in todo[rank][-1:]:
            posted.update(end.message for end in call.posts)
            if call.barrier is not None:
                arrived[call.barrier].append(now[rank])

    def returns(call: OpenCall) -> bool:
        complete = all(end.message.step for end in call.awaits)
        return complete and len(arrived[call.barrier]) in (0, ranks)

    def advance(rank: int) -> bool:
        """Let a rank go on as far as it gets; whether it did."""
        before = len(todo[rank])
        while todo[rank] and returns(todo[rank][-1]):
            call = todo[rank].pop()
            steps = [end.message.step for end in call.awaits]
            call.step = now[rank] = max([now[rank], *steps, *arrived[call.barrier]])
            enter(rank)
        return len(todo[rank]) < before

    for rank in range(ranks):
        enter(rank)
    for step in count(1):
        while sum(advance(rank) for rank in range(ranks)):
            pass
        ready = [send for send, ends in posted.items() if ends == 2]
        posted.subtract(ready + ready)
        posted += Counter()  # forgets what is at 0
        waiting += sorted(ready, key=lambda send: (send.rank, send.call.number))
        if not waiting:
            return
        waiting = _travel(waiting, step)


def _travel(waiting: list[End], step: int) -> list[End]:
    """Give the step to the messages that can travel together; returns the others."""
    sending, receiving, rest = set(), set(), []
    for send in waiting:
        if send.rank in sending or send.peer in receiving:
            rest.append(send)
        else:
            sending.add(send.rank)
            receiving.add(send.peer)
            send.step = step
    return rest
