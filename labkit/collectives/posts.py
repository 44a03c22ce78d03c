"""The two ends of messages, as calls post them, and how a send finds its receive."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from labkit.collectives import faults
from labkit.collectives.communicator import ANY_SOURCE, ANY_TAG
from labkit.collectives.lines import Lines, Spot
from labkit.collectives.trace import Call, Message

__all__ = ["Entered", "Mailboxes", "Matched", "Post"]


@dataclass(slots=True, eq=False)
class Entered:
    """A call that a rank has entered; `number` and `step` are known when it comes back."""

    rank: int
    name: str
    spot: Spot
    lines: Lines = field(repr=False)
    posts: list[Post] = field(default_factory=list)
    awaits: list[Post] = field(default_factory=list)
    barrier: int | None = None
    number: int = -1
    step: int = 0

    def recorded(self) -> Call:
        """The call as plain data."""
        begins, awaits = _numbers(self.posts), _numbers(self.awaits)
        return Call(
            self.number, self.rank, self.name, self.spot.place, self.step,
            begins, awaits, self.barrier,
        )  # fmt: skip


@dataclass(slots=True, eq=False)
class Post:
    """One end of a message: a send or a receive that a call has posted."""

    call: Entered
    sends: bool
    peer: int  # the other rank, or ANY_SOURCE
    tag: int
    flat: np.ndarray | None  # the program's own memory; None when the call has let go of it
    held: np.ndarray | None  # what that memory held when the end was posted
    clock: int
    region: tuple[int, int] | None = None  # the elements of its rank's buffer that it is
    eager: bool = False  # a send that does not wait for its receiver
    late: bool = False  # of Isend or Irecv, to be waited for
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


@dataclass(slots=True, eq=False)
class Matched:
    """A send and the receive that took it; `data` is on its way until the receiver has it."""

    number: int
    step: int
    tag: int
    nbytes: int
    count: int
    sent_from: tuple[int, int] | None
    into: tuple[int, int] | None
    sender: Entered
    receiver: Entered
    data: np.ndarray | None

    def recorded(self) -> Message:
        """The message as plain data."""
        return Message(
            self.number,
            self.sender.rank,
            self.receiver.rank,
            self.tag,
            self.nbytes,
            self.count,
            self.step,
            self.sent_from,
            self.into,
            self.sender.number,
            self.receiver.number,
        )


class Mailboxes:
    """What each rank has been offered and what it looks for, in the order in which it came."""

    def __init__(self, buffers: list[np.ndarray], lines: Lines) -> None:
        self.matched: list[Matched] = []
        self.offered: list[list[Post]] = [[] for _ in buffers]  # by receiver
        self.wanted: list[list[Post]] = [[] for _ in buffers]
        self._lines = lines
        # A rank sends one message in a step, and receives one: the steps that are taken.
        self._sending: list[set[int]] = [set() for _ in buffers]
        self._receiving: list[set[int]] = [set() for _ in buffers]

    def offer(self, send: Post) -> Post | None:
        """Give a message to the first receive that fits; None when it has to wait for one."""
        wanted = self.wanted[send.peer]
        for index, receive in enumerate(wanted):
            if _fits(send, receive):
                del wanted[index]
                self._match(send, receive)
                return receive
        self.offered[send.peer].append(send)
        return None

    def want(self, receive: Post) -> Post | None:
        """Take the first message that fits; None when none has been offered yet."""
        offered = self.offered[receive.rank]
        for index, send in enumerate(offered):
            if _fits(send, receive):
                del offered[index]
                self._match(send, receive)
                return send
        self.wanted[receive.rank].append(receive)
        return None

    def _match(self, send: Post, receive: Post) -> None:
        there, room, data = send.flat, receive.flat, send.held
        assert there is not None
        assert room is not None
        if there.dtype != room.dtype and there.size:
            raise faults.different_dtypes(send, receive, self._lines)
        if there.size > room.size:
            raise faults.too_long(send, receive, self._lines)
        step = max(send.clock, receive.clock) + 1
        sending, receiving = self._sending[send.rank], self._receiving[receive.rank]
        while step in sending or step in receiving:
            step += 1
        sending.add(step)
        receiving.add(step)
        matched = Matched(
            len(self.matched),
            step,
            send.tag,
            there.nbytes,
            there.size,
            send.region,
            receive.region and (receive.region[0], receive.region[0] + there.size),
            send.call,
            receive.call,
            data,
        )
        send.message = receive.message = matched
        self.matched.append(matched)


def _fits(send: Post, receive: Post) -> bool:
    return receive.peer in (send.rank, ANY_SOURCE) and receive.tag in (send.tag, ANY_TAG)


def _numbers(posts: list[Post]) -> tuple[int, ...]:
    return tuple([post.message.number for post in posts if post.message is not None])
