"""What ranks write: cut into lines, shown with the rank while the run goes, and kept.

`Recording` is what programs of other frameworks wrote, for those who have not built them.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import sys
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from labkit.cluster.engine import Stream
from labkit.environments import Environment
from labkit.hardware import machine_text
from labkit.kinds import Kind, recorded
from labkit.plain import read, write

SHOWN = 100_000  # characters of a rank on the page
KEPT = 10_000  # lines of a rank: the latest ones
PAUSE = 0.2  # seconds: print writes a line in pieces
LONGEST = 1 << 16  # a longer line is cut
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


@dataclass
class _RankOutput:
    partial: dict[Stream, bytes] = field(default_factory=dict)
    written: dict[Stream, float] = field(default_factory=dict)  # seconds of the latest bytes
    lines: deque[OutputLine] = field(default_factory=lambda: deque(maxlen=KEPT))
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
        kept.written[stream] = seconds
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

    def lines(self) -> tuple[OutputLine, ...]:
        """All lines in the order in which they came; of a flood, the latest."""
        every = (line for kept in self._ranks for line in kept.lines)
        return tuple(sorted(every, key=lambda line: line.seconds))

    def find(self, text: str, rank: int | None, now: float) -> OutputLine | None:
        """The first line of a rank, or of any, with this text; also one that is not continued."""
        begun = (
            _line(kept.written[stream], number, stream, data)
            for number, kept in enumerate(self._ranks)
            for stream, data in kept.partial.items()
            if now > kept.written[stream] + PAUSE
        )
        every = (*self.lines(), *begun)
        return next((x for x in every if text in x.text and rank in (None, x.rank)), None)

    def last(self, rank: int) -> OutputLine | None:
        """The latest line of a rank."""
        return next(reversed(self._ranks[rank].lines), None)

    def text(self, rank: int) -> str:
        """What a rank has written, as far as it is kept."""
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


@dataclass(frozen=True)
class RecordedRun:
    """What the ranks of one run of a script wrote."""

    kind: Kind
    environment: str
    ranks: int
    arguments: tuple[str, ...]
    program: str
    """From `hash_of`."""
    lines: tuple[OutputLine, ...]

    @property
    def key(self) -> tuple[str, int, tuple[str, ...]]:
        """Which run of the script it is."""
        return self.environment, self.ranks, self.arguments


@dataclass(frozen=True)
class Recording:
    """The recorded runs of a script, in `recordings/NAME.json` beside it."""

    runs: tuple[RecordedRun, ...] = ()

    @staticmethod
    def file_of(script: Path) -> Path:
        """Where they are kept."""
        return script.parent / "recordings" / f"{script.stem}.json"

    @staticmethod
    def of(script: Path) -> Recording:
        """The recorded runs of this script; empty if there are none."""
        file = Recording.file_of(script)
        return read(file, Recording, "a recording") if file.is_file() else Recording()

    def find(self, environment: str, ranks: int, arguments: tuple[str, ...]) -> RecordedRun | None:
        """The run of this environment with these ranks and arguments."""
        key = environment, ranks, arguments
        return next((each for each in self.runs if each.key == key), None)


def record(
    chosen: Environment,
    ranks: int,
    script: Path,
    arguments: tuple[str, ...],
    lines: Iterable[OutputLine],
) -> Path:
    """Keep a run in the recording of its script, without paths of this machine."""
    words = chosen.stamp.words() if chosen.stamp else ""
    paths = [f"{path}/" for path in (chosen.venv.resolve(), chosen.venv, script.parent)]

    def kept(line: OutputLine) -> OutputLine:
        text = line.text
        for path in paths:
            text = text.replace(path, "")
        return replace(line, seconds=round(line.seconds, 3), text=text)

    run = RecordedRun(
        kind=recorded(f"{machine_text()}, {words}", dt.datetime.now(dt.UTC).date().isoformat()),
        environment=chosen.name,
        ranks=ranks,
        arguments=arguments,
        program=hash_of(script, arguments),
        lines=tuple(map(kept, lines)),
    )
    others = (each for each in Recording.of(script).runs if each.key != run.key)
    runs = sorted([*others, run], key=lambda each: each.key)
    Recording.file_of(script).parent.mkdir(exist_ok=True)
    return write(Recording.file_of(script), Recording(tuple(runs)))


def hash_of(script: Path, arguments: tuple[str, ...]) -> str:
    """A hash of the script, and of scripts among its arguments."""
    files = [script, *(Path(text) for text in arguments if text.endswith(".py"))]
    source = b"".join(file.read_bytes() for file in files if file.is_file())
    return hashlib.sha256(source).hexdigest()[:16]


def _line(seconds: float, rank: int, stream: Stream, data: bytes) -> OutputLine:
    # A progress bar rewrites its line: its last state counts.
    data = data.rstrip(b"\r").rpartition(b"\r")[2]
    return OutputLine(seconds, rank, stream, data.decode("utf-8", errors="replace"))
