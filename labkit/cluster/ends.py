"""Our ends of a rank's pipes, and what comes out of them as events."""

from __future__ import annotations

import mmap
import os
import socket
from dataclasses import dataclass, field
from typing import Literal

from labkit.cluster.engine import Event, Output, Raised, Ready, Returned, Stack
from labkit.cluster.forked import DONE, READY
from labkit.cluster.messages import Post

__all__ = ["Ends"]

CHUNK = 1 << 16
AT_ONCE = 1 << 20  # bytes taken from one pipe before the others have their turn
Kind = Literal["out", "err", "post", "stack"]


@dataclass
class Ends:
    """stdout, stderr, messages and stacks of one rank of this machine."""

    number: int
    post: Post
    files: dict[int, Kind]
    ready: bool = False
    ended: int | None = None
    at_end: set[int] = field(default_factory=set)
    """Files from which no more will come."""

    @staticmethod
    def made(number: int) -> tuple[Ends, tuple[int, ...]]:
        """Our ends, and the rank's: stdout, stderr, messages, stacks."""
        ours, its = socket.socketpair()
        ours.setblocking(False)
        pipes: dict[Kind, tuple[int, int]] = {
            "out": os.pipe(),
            "err": os.pipe(),
            "stack": os.pipe(),
        }
        files: dict[int, Kind] = {pipe[0]: kind for kind, pipe in pipes.items()}
        for file in files:
            os.set_blocking(file, False)
        theirs = (pipes["out"][1], pipes["err"][1], its.detach(), pipes["stack"][1])
        return Ends(number, Post(ours), {**files, ours.fileno(): "post"}), theirs

    def read(self, file: int) -> list[Event]:
        """What has come through one of the files; never waits."""
        kind = self.files[file]
        if kind == "post":
            return self._messages(file)
        data = self._bytes(file)
        if not data:
            return []
        if kind == "stack":
            return [Stack(self.number, data.decode(errors="replace"))]
        return [Output(self.number, kind, data)]

    def close(self, file: int) -> None:
        """Read no more from it."""
        if self.files.pop(file) == "post":
            self.post.close()
        else:
            os.close(file)

    def _bytes(self, file: int) -> bytes:
        pieces: list[bytes] = []
        taken = 0
        while taken < AT_ONCE:
            try:
                piece = os.read(file, CHUNK)
            except BlockingIOError:
                break
            if not piece:
                self.at_end.add(file)
                break
            pieces.append(piece)
            taken += len(piece)
        return b"".join(pieces)

    def _messages(self, file: int) -> list[Event]:
        found: list[Event] = []
        while self.post.pull():
            pass  # messages are short: what is large comes as a file
        while (message := self.post.next()) is not None:
            if message.startswith(READY):
                # Its own word: the launcher's about the same rank may come later.
                self.ready = True
                found.append(Ready(self.number, int(message[len(READY) :]), "this machine"))
            else:
                found += self._written()
                found.append(self._came_back(message))
        if self.post.closed:
            self.at_end.add(file)
        return found

    def _written(self) -> list[Event]:
        """What is in the pipes of a rank that says it is done: it wrote all of it before.

        Who waits for several files may be told of the message alone: the pipes were looked at
        first, and empty then. The run may be over with it, and then nobody looks again.
        """
        streams = [file for file, kind in self.files.items() if kind in ("out", "err")]
        return [event for file in streams for event in self.read(file)]

    def _came_back(self, message: bytes) -> Event:
        what, payload = message[:1], memoryview(message)[1:]
        if not payload:
            file = self.post.files(1)[0]
            payload = memoryview(mmap.mmap(file, 0, access=mmap.ACCESS_READ))
            os.close(file)
        kind = Returned if what == DONE["returned"] else Raised
        return kind(self.number, payload)
