"""What ranks write: put into lines, shown with the rank before them, and kept."""

from __future__ import annotations

import sys
import tempfile
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from labkit.cluster.engine import Stream
from labkit.plain import stored

__all__ = ["Line", "Output"]

SHOWN = 100_000  # bytes of a rank on the page
KEPT_LINES = 5_000  # of a rank, in the outcome; then the latest as many again
KEPT = 64_000_000  # bytes of a rank, in a file
LONGEST = 1 << 16  # a line that does not end is cut


@stored
@dataclass(frozen=True)
class Line:
    """A line that a rank has written, `seconds` after all ranks had begun."""

    seconds: float
    rank: int
    stream: Stream
    text: str

    def __str__(self) -> str:
        return f"rank {self.rank}: {self.text}"


class Output:
    """All that the ranks of a run have written."""

    def __init__(self, ranks: int, show: bool, kept_as: str = "c.output") -> None:
        self.show = show
        self._kept_as = kept_as
        self._begun: dict[tuple[int, Stream], bytes] = {}
        self._first: list[list[Line]] = [[] for _ in range(ranks)]
        self._latest: list[deque[Line]] = [deque(maxlen=KEPT_LINES) for _ in range(ranks)]
        self._shown = [0] * ranks
        self._spools: list[Any] = [None] * ranks
        self._sizes = [0] * ranks

    def take(self, rank: int, stream: Stream, data: bytes, seconds: float) -> list[Line]:
        """Bytes as they came; the lines that they complete."""
        self._spool(rank, data)
        *whole, rest = (self._begun.pop((rank, stream), b"") + data).split(b"\n")
        while len(rest) > LONGEST:
            whole.append(rest[:LONGEST])
            rest = rest[LONGEST:]
        if rest:
            self._begun[rank, stream] = rest
        return self._finish(rank, stream, whole, seconds)

    def unfinished(self) -> list[tuple[int, Stream, str]]:
        """Lines that have no end yet."""
        return [(rank, stream, _text(data)) for (rank, stream), data in self._begun.items()]

    def end(self, rank: int, seconds: float) -> list[Line]:
        """The rank will write no more: what it has begun is a line, too."""
        found: list[Line] = []
        for key in [key for key in self._begun if key[0] == rank]:
            found += self._finish(rank, key[1], [self._begun.pop(key)], seconds)
        return found

    def lines(self) -> tuple[Line, ...]:
        """All lines in the order in which they came; of a flood, the first and the latest."""
        every = [line for kept in (*self._first, *self._latest) for line in kept]
        return tuple(sorted(every, key=lambda line: line.seconds))

    def last(self, rank: int) -> Line | None:
        """The latest line of a rank."""
        kept = self._latest[rank] or self._first[rank]
        return kept[-1] if kept else None

    def text(self, rank: int) -> str:
        """All that a rank has written, stdout and stderr as they came."""
        spool = self._spools[rank]
        if spool is None:
            return ""
        spool.seek(0)
        found: bytes = spool.read()
        text = found.decode("utf-8", errors="replace").replace("\r\n", "\n")
        if self._sizes[rank] > KEPT:
            text += f"\n(cut here: rank {rank} wrote {self._sizes[rank]:,} bytes)\n"
        return text

    def _spool(self, rank: int, data: bytes) -> None:
        if self._spools[rank] is None:
            # No name: whatever becomes of this process, no file stays.
            self._spools[rank] = tempfile.TemporaryFile(prefix="labkit-")  # noqa: SIM115
        room = KEPT - self._sizes[rank]
        self._sizes[rank] += len(data)
        if room > 0:
            with suppress(OSError):  # a full disk costs the copy, and not the run
                self._spools[rank].seek(0, 2)
                self._spools[rank].write(data[:room])

    def _finish(self, rank: int, stream: Stream, pieces: list[bytes], seconds: float) -> list[Line]:
        found = [Line(seconds, rank, stream, _text(piece)) for piece in pieces]
        first = self._first[rank]
        room = KEPT_LINES - len(first)
        first.extend(found[:room])
        self._latest[rank].extend(found[room:])
        if self.show and found:
            self._show(rank, stream, found)
        return found

    def _show(self, rank: int, stream: Stream, lines: list[Line]) -> None:
        if self._shown[rank] > SHOWN:
            return
        texts: list[str] = []
        for line in lines:
            texts.append(f"{line}\n")
            self._shown[rank] += len(texts[-1])
            if self._shown[rank] > SHOWN:
                texts.append(f"rank {rank}: (more; all of it in {self._kept_as}({rank}))\n")
                break
        write: Callable[[str], Any] = (sys.stdout if stream == "out" else sys.stderr).write
        write("".join(texts))
        with suppress(AttributeError, OSError, ValueError):
            (sys.stdout if stream == "out" else sys.stderr).flush()


def _text(data: bytes) -> str:
    # A progress bar rewrites its line: the last state of it is what counts.
    data = data.rstrip(b"\r").rpartition(b"\r")[2]
    return data.decode("utf-8", errors="replace")
