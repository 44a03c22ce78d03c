"""What programs of other frameworks wrote, recorded for those who have not built the framework."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from labkit.cluster.ranks.output import OutputLine
from labkit.environments import Environment
from labkit.hardware import machine_text
from labkit.kinds import Kind, recorded
from labkit.plain import read, write


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
        """Identifies the run among those of its script."""
        return self.environment, self.ranks, self.arguments


@dataclass(frozen=True)
class RecordedRuns:
    """The recorded runs of a script, in `recordings/NAME.json` beside it."""

    runs: tuple[RecordedRun, ...] = ()

    @staticmethod
    def file_of(script: Path) -> Path:
        """Returns the file with the recorded runs of a script."""
        return script.parent / "recordings" / f"{script.stem}.json"

    @staticmethod
    def of(script: Path) -> RecordedRuns:
        """Returns the recorded runs of this script, if any."""
        file = RecordedRuns.file_of(script)
        return read(file, RecordedRuns, "a recording") if file.is_file() else RecordedRuns()

    def find(self, environment: str, ranks: int, arguments: tuple[str, ...]) -> RecordedRun | None:
        """Returns the run of this environment with these ranks and arguments, or None."""
        key = environment, ranks, arguments
        return next((run for run in self.runs if run.key == key), None)


def record(
    chosen: Environment,
    ranks: int,
    script: Path,
    arguments: tuple[str, ...],
    lines: Iterable[OutputLine],
) -> Path:
    """Add a run to the recorded runs of its script, without paths of this machine."""
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
    others = (old for old in RecordedRuns.of(script).runs if old.key != run.key)
    runs = sorted([*others, run], key=lambda run: run.key)
    RecordedRuns.file_of(script).parent.mkdir(exist_ok=True)
    return write(RecordedRuns.file_of(script), RecordedRuns(tuple(runs)))


def hash_of(script: Path, arguments: tuple[str, ...]) -> str:
    """Returns a hash of the script and of scripts among its arguments."""
    files = [script, *(Path(text) for text in arguments if text.endswith(".py"))]
    source = b"".join(file.read_bytes() for file in files if file.is_file())
    return hashlib.sha256(source).hexdigest()[:16]
