"""What ranks write: cut into lines, shown with the rank while the run goes, and kept."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from html import escape

from labkit.cluster.ranks.protocol import Stream

SHOWN = 100_000  # characters of a rank on the page
KEPT = 10_000  # lines of a rank: the latest ones
LONGEST = 1 << 16  # a longer line is cut
IN_LOG = 200  # letters of a line; libraries write longer ones
LANE = (
    "border: 0; border-left: 4px {} {}; padding: 0 0.6em; text-align: left; max-width: 44em; "
    "font-family: monospace; white-space: pre-wrap; overflow-wrap: anywhere; vertical-align: top"
)
# What TensorFlow's CUDA build writes as an error in ranks that get no GPU, and its first line.
NO_GPU = (
    "Failed call to cuInit: CUDA_ERROR_NO_DEVICE",
    "log messages before absl::InitializeLog()",
)


@dataclass(frozen=True)
class OutputLine:
    """A line that a rank has written, `seconds` after all ranks had begun."""

    seconds: float
    rank: int
    stream: Stream
    text: str

    def __str__(self) -> str:
        return f"rank {self.rank}: {self.text}"


@dataclass(frozen=True, repr=False)
class Log:
    """What ranks wrote, in the order in which it came: seconds, rank, stream and text of each line.

    Each rank has a lane in its colour, dashed beside lines of its error stream.
    """

    lines: Sequence[OutputLine]

    def __repr__(self) -> str:
        return "\n".join(f"{line.seconds:6.2f} s  {line}"[:IN_LOG] for line in self.lines)

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        from labkit.collectives.page.cells import rank_color

        ranks = sorted({line.rank for line in self.lines})
        rows = "".join(f'<th style="text-align: left">rank {rank}</th>' for rank in ranks)
        for line in self.lines:
            rows += f"</tr><tr><td>{line.seconds:.2f}&nbsp;s</td>"
            for rank in ranks:
                text = escape(line.text[:IN_LOG]) if rank == line.rank else ""
                dash = "dashed" if text and line.stream == "err" else "solid"
                rows += f'<td style="{LANE.format(dash, rank_color(rank))}">{text}</td>'
        html = f'<div style="overflow-x: auto"><table><tr><th></th>{rows}</tr></table></div>'
        return {"text/plain": repr(self), "text/html": f"{html}<p>Dashed: the error stream.</p>"}


@dataclass
class _RankOutput:
    partial: dict[Stream, bytes] = field(default_factory=dict)
    lines: deque[OutputLine] = field(default_factory=lambda: deque(maxlen=KEPT))
    count: int = 0
    shown: int = 0


class Output:
    """All that the ranks of a run have written."""

    def __init__(self, ranks: int, show: bool) -> None:
        self.show = show
        self._ranks = [_RankOutput() for _ in range(ranks)]

    def take(self, rank: int, stream: Stream, data: bytes, seconds: float) -> None:
        """Take bytes as they came."""
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
        """The rank writes no more. A line that it has begun counts as a line."""
        for stream in [*self._ranks[rank].partial]:
            self.take(rank, stream, b"\n", seconds)

    def lines(self) -> tuple[OutputLine, ...]:
        """Returns all lines in the order in which they came, or the latest lines of a flood."""
        every = (line for kept in self._ranks for line in kept.lines)
        return tuple(sorted(every, key=lambda line: line.seconds))

    def find(self, text: str, rank: int | None) -> OutputLine | None:
        """Returns the first line with this text, of a rank or of any rank."""
        return next((x for x in self.lines() if text in x.text and rank in (None, x.rank)), None)

    def last(self, rank: int) -> OutputLine | None:
        """Returns the latest line of a rank."""
        return next(reversed(self._ranks[rank].lines), None)

    def text(self, rank: int) -> str:
        """Returns what a rank has written, as far as it is kept."""
        kept = self._ranks[rank]
        missing = kept.count - len(kept.lines)
        lines = [f"({missing:,} earlier lines are not kept)"] if missing else []
        return "".join(f"{line}\n" for line in (*lines, *(line.text for line in kept.lines)))

    def _add(self, kept: _RankOutput, line: OutputLine) -> None:
        if line.stream == "err" and any(words in line.text for words in NO_GPU):
            return
        kept.count += 1
        kept.lines.append(line)
        if self.show and kept.shown <= SHOWN:
            text = f"{line}\n"
            kept.shown += len(text)
            if kept.shown > SHOWN:
                text += f"rank {line.rank}: (more in c.output({line.rank}))\n"
            (sys.stdout if line.stream == "out" else sys.stderr).write(text)


def _line(seconds: float, rank: int, stream: Stream, data: bytes) -> OutputLine:
    # A progress bar rewrites its line: its last state counts.
    data = data.rstrip(b"\r").rpartition(b"\r")[2]
    return OutputLine(seconds, rank, stream, data.decode("utf-8", errors="replace"))
