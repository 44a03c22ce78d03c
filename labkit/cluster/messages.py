"""Messages over a pair of sockets: a length, then bytes; open files may travel along.

The other end of a pair is in one process only, which we have started: nobody else can speak there.
"""

from __future__ import annotations

import os
import pickle
import socket
import struct
import tempfile
from collections.abc import Sequence
from typing import Any

__all__ = ["Post", "frame", "unnamed_file"]

HEAD = struct.Struct("<Q")
CHUNK = 1 << 18
MOST_FILES = 32


def unnamed_file() -> Any:
    """A file that is gone with its last user; in memory, where the system has such files."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("labkit"), "w+b")
    return tempfile.TemporaryFile(prefix="labkit-")


def frame(data: bytes) -> bytes:
    """The message with its length before it."""
    return HEAD.pack(len(data)) + data


class Post:
    """One end of a pair: `send` values, `receive` those that have come."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self.closed = False
        """The other end is gone; there is no more to come."""
        self._read = bytearray()
        self._files: list[int] = []

    def fileno(self) -> int:
        """For selectors."""
        return self.end.fileno()

    def send(self, value: object, files: Sequence[int] = ()) -> None:
        """Send a value; OSError when nobody is there."""
        data = frame(pickle.dumps(value))
        # With the first byte of its message: messages take their files in the same order.
        sent = socket.send_fds(self.end, [data], list(files)) if files else self.end.send(data)
        if sent < len(data):
            self.end.sendall(data[sent:])

    def receive(self, wanted: bool = True) -> list[Any]:
        """All whole messages that have come; waits for a piece of one if `wanted`.

        The number of files that came with them is what `files` has.
        """
        if wanted:
            self.pull()
        found = []
        while (data := self.next()) is not None:
            found.append(pickle.loads(data))  # noqa: S301 (see the top of this file)
        return found

    def pull(self) -> bool:
        """Take in what is there; False when there was nothing."""
        try:
            data, files, _, _ = socket.recv_fds(self.end, CHUNK, MOST_FILES)
        except BlockingIOError:
            return False
        except OSError:
            self.closed = True
            return False
        self._files.extend(files)
        self._read += data
        if not data:
            self.closed = True
        return bool(data)

    def next(self) -> bytes | None:
        """The next whole message, as it was sent."""
        if len(self._read) < HEAD.size:
            return None
        end = HEAD.size + HEAD.unpack_from(self._read)[0]
        if len(self._read) < end:
            return None
        data = bytes(memoryview(self._read)[HEAD.size : end])
        del self._read[:end]
        return data

    def files(self, count: int) -> list[int]:
        """The files that came with a message, in its order."""
        taken, self._files = self._files[:count], self._files[count:]
        return taken

    def close(self) -> None:
        """Close this end."""
        self.closed = True
        self.end.close()
