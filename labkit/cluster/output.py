"""What ranks write: cut into lines, shown with the rank while the run goes, and kept."""

from __future__ import annotations

import sys
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field

from labkit.cluster.engine import Stream
from labkit.plain import stored

__all__ = ["Line", "Output"]

SHOWN = 100_000  # characters of a rank on the page
KEPT = 10_000  # lines of a rank: the latest ones
LONGEST = 1 << 16  # a longer line is cut


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


@dataclass
class _RankOutput:
    partial: dict[Stream, bytes] = field(default_factory=dict)
    lines: deque[Line] = field(default_factory=lambda: deque(maxlen=KEPT))
    count: int = 0
    shown: int = 0


class Output:
    """All that the ranks of a run have written."""

    def __init__(self, ranks: int, show: bool) -> None:
        self.show = show
        self._ranks = [_RankOutput() for _ in range(ranks)]

    def take(self, rank: int, stream: Stream, data: bytes, seconds: float) -> None:
        """Bytes as they came."""
        kept = self._ranks[rank]
        *whole, rest = (kept.partial.pop(stream, b"") + data).split(b"\n")
        while len(rest) > LONGEST:
            whole.append(rest[:LONGEST])
            rest = rest[LONGEST:]
        if rest:
            kept.partial[stream] = rest
        for piece in whole:
            self._add(kept, _line(seconds, rank, stream, piece))
        if whole and self.show:
            with suppress(OSError, ValueError):
                (sys.stdout if stream == "out" else sys.stderr).flush()

    def end(self, rank: int, seconds: float) -> None:
        """The rank will write no more: what it has begun is a line, too."""
        for stream in [*self._ranks[rank].partial]:
            self.take(rank, stream, b"\n", seconds)

    def lines(self) -> tuple[Line, ...]:
        """All lines in the order in which they came; of a flood, the latest."""
        every = (line for kept in self._ranks for line in kept.lines)
        return tuple(sorted(every, key=lambda line: line.seconds))

    def find(self, text: str, rank: int | None) -> Line | None:
        """The first line of a rank, or of any, with this text in it."""
        return next((x for x in self.lines() if text in x.text and rank in (None, x.rank)), None)

    def last(self, rank: int) -> Line | None:
        """The latest line of a rank."""
        return next(reversed(self._ranks[rank].lines), None)

    def text(self, rank: int) -> str:
        """What a rank has written, as far as it is kept."""
        kept = self._ranks[rank]
        missing = kept.count - len(kept.lines)
        lines = [f"({missing:,} earlier lines are not kept)"] if missing else []
        return "".join(f"{line}\n" for line in (*lines, *(line.text for line in kept.lines)))

    def _add(self, kept: _RankOutput, line: Line) -> None:
        kept.count += 1
        kept.lines.append(line)
        if self.show and kept.shown <= SHOWN:
            text = f"{line}\n"
            kept.shown += len(text)
            if kept.shown > SHOWN:
                text += f"rank {line.rank}: (more in c.output({line.rank}))\n"
            (sys.stdout if line.stream == "out" else sys.stderr).write(text)


def _line(seconds: float, rank: int, stream: Stream, data: bytes) -> Line:
    # A progress bar rewrites its line: its last state counts.
    data = data.rstrip(b"\r").rpartition(b"\r")[2]
    return Line(seconds, rank, stream, data.decode("utf-8", errors="replace"))
