"""Messages over a pair of sockets: a length, then a pickle. Open files may travel with a message.

The other end is in a process that we have started: no other process can write there.
"""

import pickle
import socket
import struct
from collections.abc import Sequence
from typing import Any

LENGTH = struct.Struct("<Q")
CHUNK = 1 << 18
MOST_FILES = 32


class Channel:
    """An end of a pair. Unlike multiprocessing's Connection, it receives without waiting."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self.closed = False
        """Whether the other end is gone and everything that it sent has been received."""
        self.files: list[int] = []
        """The files that came with messages, in order."""
        self._read = bytearray()

    def fileno(self) -> int:
        """For selectors."""
        return self.end.fileno()

    def send(self, *message: object, files: Sequence[int] = ()) -> None:
        """Send a message. Raises OSError when the other end is gone."""
        data = pickle.dumps(message)
        data = LENGTH.pack(len(data)) + data
        # Files travel with the first byte.
        sent = socket.send_fds(self.end, [data], list(files)) if files else self.end.send(data)
        self.end.sendall(data[sent:])

    def receive(self) -> list[tuple[Any, ...]]:
        """Returns the messages that have come whole. A blocking socket first waits for data."""
        try:
            data, files, _, _ = socket.recv_fds(self.end, CHUNK, MOST_FILES)
        except BlockingIOError:
            return []
        except OSError:
            data, files = b"", []
        self.files += files
        self._read += data
        self.closed = not data
        found = []
        while len(self._read) >= LENGTH.size:
            end = LENGTH.size + LENGTH.unpack_from(self._read)[0]
            if len(self._read) < end:
                break
            found.append(pickle.loads(bytes(self._read[LENGTH.size : end])))  # noqa: S301
            del self._read[:end]
        return found

    def close(self) -> None:
        """Close this end."""
        self.closed = True
        self.end.close()
