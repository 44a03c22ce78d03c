"""What ranks write: cut into lines, shown with the rank while the run goes, and kept."""

from __future__ import annotations

import sys
from collections import deque
from contextlib import suppress
from dataclasses import dataclass

from labkit.cluster.engine import Stream
from labkit.plain import stored

__all__ = ["Line", "Output"]

SHOWN = 100_000  # bytes of a rank on the page
KEPT = 5_000  # lines of a rank: the first ones, and as many of the latest
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


class _Kept:
    """What is kept of one rank."""

    def __init__(self) -> None:
        self.begun: dict[Stream, bytes] = {}
        self.first: list[Line] = []
        self.latest: deque[Line] = deque(maxlen=KEPT)
        self.count = self.shown = 0


class Output:
    """All that the ranks of a run have written."""

    def __init__(self, ranks: int, show: bool) -> None:
        self.show = show
        self._ranks = [_Kept() for _ in range(ranks)]

    def take(self, rank: int, stream: Stream, data: bytes, seconds: float) -> None:
        """Bytes as they came."""
        kept = self._ranks[rank]
        *whole, rest = (kept.begun.pop(stream, b"") + data).split(b"\n")
        while len(rest) > LONGEST:
            whole.append(rest[:LONGEST])
            rest = rest[LONGEST:]
        if rest:
            kept.begun[stream] = rest
        self._add(kept, [Line(seconds, rank, stream, _text(piece)) for piece in whole])

    def end(self, rank: int, seconds: float) -> None:
        """The rank will write no more: what it has begun is a line, too."""
        kept = self._ranks[rank]
        for stream in list(kept.begun):
            self._add(kept, [Line(seconds, rank, stream, _text(kept.begun.pop(stream)))])

    def lines(self) -> tuple[Line, ...]:
        """All lines in the order in which they came; of a flood, the first and the latest."""
        every = (line for kept in self._ranks for line in (*kept.first, *kept.latest))
        return tuple(sorted(every, key=lambda line: line.seconds))

    def find(self, text: str, rank: int | None, seconds: float) -> Line | None:
        """The first line of a rank, or of any, with this text in it; it need not have ended."""
        begun = (
            Line(seconds, number, stream, _text(data))
            for number, kept in enumerate(self._ranks)
            for stream, data in kept.begun.items()
        )
        every = (*self.lines(), *begun)
        return next((x for x in every if text in x.text and rank in (None, x.rank)), None)

    def last(self, rank: int) -> Line | None:
        """The latest line of a rank."""
        kept = self._ranks[rank].latest or self._ranks[rank].first
        return kept[-1] if kept else None

    def text(self, rank: int) -> str:
        """What a rank has written, as far as it is kept."""
        kept = self._ranks[rank]
        missing = kept.count - len(kept.first) - len(kept.latest)
        cut = [f"({missing:,} lines are not kept)"] if missing else []
        lines = [line.text for line in kept.first], cut, [line.text for line in kept.latest]
        return "".join(f"{line}\n" for part in lines for line in part)

    def _add(self, kept: _Kept, lines: list[Line]) -> None:
        kept.count += len(lines)
        room = KEPT - len(kept.first)
        kept.first.extend(lines[:room])
        kept.latest.extend(lines[room:])
        if not self.show or not lines or kept.shown > SHOWN:
            return
        texts: list[str] = []
        for line in lines:
            texts.append(f"{line}\n")
            kept.shown += len(texts[-1])
            if kept.shown > SHOWN:
                number = line.rank
                texts.append(f"rank {number}: (more in c.output({number}))\n")
                break
        screen = sys.stdout if lines[0].stream == "out" else sys.stderr
        screen.write("".join(texts))
        with suppress(AttributeError, OSError, ValueError):
            screen.flush()


def _text(data: bytes) -> str:
    # A progress bar rewrites its line: its last state counts.
    data = data.rstrip(b"\r").rpartition(b"\r")[2]
    return data.decode("utf-8", errors="replace")
