"""What a student has tried and solved: a file beside the notebooks, and a table by lecture.

>>> Progress({"01.adam_memory": Attempts(tries=2, solved=True)}).tasks["01.adam_memory"].tries
2
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from labkit import plain
from labkit.arguments import whole
from labkit.kinds import LabError
from labkit.shown import ShownAsTable

if TYPE_CHECKING:
    from labkit.views.table import Table

# In the folder of the notebook: there its kernel starts.
FILE = Path("labkit-progress.json").absolute()


@dataclass(frozen=True)
class Attempts:
    """Of one task: how often it was tried, whether it is solved, how many hints were shown."""

    tries: int = 0
    solved: bool = False
    hints: int = 0


@dataclass(frozen=True)
class Progress:
    """All tasks that were tried, or of which a hint was shown, by name."""

    tasks: dict[str, Attempts] = field(default_factory=dict)


@dataclass(frozen=True, repr=False)
class Summary(ShownAsTable):
    """The tasks solved, tried and there, by lecture."""

    rows: tuple[tuple[str, int, int, int], ...]
    origin: str
    """A sentence: of which file."""

    def table(self) -> Table:
        """A row for each lecture, and the sum."""
        from labkit.views.table import Table

        total = ("all", *map(sum, list(zip(*self.rows, strict=True))[1:]))
        rows = [[str(cell) for cell in row] for row in (*self.rows, total)]
        return Table(("lecture", "solved", "tried", "tasks"), rows, footer=self.origin)


def read(file: Path) -> tuple[Progress, str]:
    """The progress in a file; of a damaged one what was done with it."""
    if not file.exists():
        return Progress(), ""
    try:
        found = plain.read(file, Progress, "progress")
        for one in found.tasks.values():
            whole("a number in it", one.tries + one.solved + one.hints)
    except (LabError, TypeError):
        names = (file.with_name(f"{file.stem}-damaged-{n}.json") for n in count(1))
        kept = next(name for name in names if not name.exists())
        with suppress(OSError):
            file.replace(kept)
        return Progress(), f"{file.name} was damaged: it is now {kept.name}, and a new one begins."
    return found, ""


_unwritten: dict[Path, Progress] = {}  # until the kernel ends, where a file cannot be written


def current() -> tuple[Progress, str]:
    """The progress of this kernel's folder, also where it cannot be written."""
    return (_unwritten[FILE], "") if FILE in _unwritten else read(FILE)


def change(task: str, by: Callable[[Attempts], Attempts]) -> tuple[Attempts, str]:
    """Write what has become of a task; returns it, and what the student should know."""
    with _alone(FILE.parent):
        progress, note = current()
        after = by(progress.tasks.get(task, Attempts()))
        changed = Progress({**progress.tasks, task: after})
        try:
            plain.write(FILE, changed)
            _unwritten.pop(FILE, None)
        except LabError:
            _unwritten[FILE] = changed
            note = f"{note} Your progress is not kept: {FILE} cannot be written.".strip()
    return after, note


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One kernel at a time reads and then writes: of two at once one would lose its change."""
    descriptor = -1
    with suppress(OSError):  # some network file systems know no locks
        descriptor = os.open(folder, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def summary(names: Iterable[str], file: Path) -> Summary:
    """The table of these tasks; a lecture is the notebook beside the file that asks them."""
    progress, note = current() if file == FILE else read(file)
    lectures = {
        name: notebook.stem
        for notebook in sorted(file.parent.glob("*.ipynb"))
        for name in re.findall(r'check\(\\"([\w.]+)\\"', notebook.read_text(encoding="utf-8"))
    }
    rows: dict[str, list[int]] = {}
    own = [name for name in progress.tasks if name.startswith("own.")]
    for name in [*names, *own]:
        row = rows.setdefault(lectures.get(name, name.partition(".")[0]), [0, 0, 0])
        done = progress.tasks.get(name, Attempts())
        for column, counts in enumerate((done.solved, done.tries > 0, 1)):
            row[column] += counts
    return Summary(
        tuple((lecture, *row) for lecture, row in sorted(rows.items())),  # type: ignore[misc]
        note or (f"From {file}." if file.exists() else f"{file} does not exist yet."),
    )
