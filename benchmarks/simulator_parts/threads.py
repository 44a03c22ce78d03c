"""The peer of the simulator: the same run with one thread per rank, as one would write it first.

It keeps the same promises where it can: a send waits for its receiver, messages are matched by
source, destination and tag in their order, each is written down. What it cannot promise is the same
trace twice, and to know a deadlock from a long wait.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class Offer:
    """A message that waits for its receiver."""

    source: int
    tag: int
    data: np.ndarray
    taken: bool = False


@dataclass
class Room:
    """What the ranks share: one lock, and the messages that each has been offered."""

    ranks: int
    changed: threading.Condition = field(default_factory=threading.Condition)
    offers: list[list[Offer]] = field(default_factory=list)
    messages: list[tuple[int, int, int, int]] = field(default_factory=list)


class Communicator:
    """A rank's end."""

    def __init__(self, room: Room, rank: int) -> None:
        self.room, self.rank = room, rank

    def Get_rank(self) -> int:
        return self.rank

    def Get_size(self) -> int:
        return self.room.ranks

    def Sendrecv(
        self,
        sendbuf: np.ndarray,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = 0,
        recvtag: int = 0,
    ) -> None:
        room = self.room
        offer = Offer(self.rank, sendtag, sendbuf.copy())
        with room.changed:
            room.offers[dest].append(offer)
            room.changed.notify_all()
            room.changed.wait_for(lambda: self._found(source, recvtag) is not None)
            found = self._found(source, recvtag)
            assert found is not None
            room.offers[self.rank].remove(found)
            found.taken = True
            recvbuf.reshape(-1)[: found.data.size] = found.data
            room.messages.append((source, self.rank, recvtag, found.data.nbytes))
            room.changed.notify_all()
            room.changed.wait_for(lambda: offer.taken)

    def _found(self, source: int, tag: int) -> Offer | None:
        offers = self.room.offers[self.rank]
        return next((o for o in offers if (o.source, o.tag) == (source, tag)), None)


def run(program: Callable[..., Any], inputs: list[np.ndarray]) -> list[np.ndarray]:
    """Run the program with a thread per rank, and give back what it left."""
    room = Room(len(inputs), offers=[[] for _ in inputs])
    buffers = [given.copy() for given in inputs]
    threads = [
        threading.Thread(target=program, args=(Communicator(room, rank), buffer))
        for rank, buffer in enumerate(buffers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return buffers
