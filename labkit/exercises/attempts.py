"""What a student has tried and solved: a file beside the notebooks, and a table by lecture.

>>> Progress({"10.adam_memory": Attempts(tries=2, solved=True)}).tasks["10.adam_memory"].tries
2
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from labkit import plain
from labkit.arguments import whole
from labkit.exercises.lecture_tasks import texts
from labkit.exercises.old_names import moved, now
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
    numbering: int = 1
    """1: the lectures in one row; 2: by part."""


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
    """The progress in a file; of a damaged one what was done with it. What hides it is raised."""
    try:
        found = plain.read(file, Progress, "progress")
        for one in found.tasks.values():
            whole("a number in it", one.tries + one.solved + one.hints)
    except (LabError, TypeError) as fault:
        if isinstance(fault.__cause__, FileNotFoundError | NotADirectoryError):
            return Progress(), ""
        if isinstance(fault.__cause__, OSError):
            raise
        names = (file.with_name(f"{file.stem}-damaged-{n}.json") for n in count(1))
        kept = next(name for name in names if not name.exists())
        with suppress(OSError):
            file.replace(kept)
        return Progress(), f"{file.name} was damaged: it is now {kept.name}, and a new one begins."
    today = now if found.numbering == 1 else moved
    renamed = {today(name, texts()): done for name, done in found.tasks.items()}
    return Progress(renamed, numbering=2), ""


_HIDDEN = Progress()  # of a file that cannot be read for a while
_unwritten: dict[Path, Progress] = {}  # until the kernel ends, where a file cannot be written


def current() -> tuple[Progress, str]:
    """The progress of this kernel's folder, also where it cannot be written."""
    try:
        return (_unwritten[FILE], "") if FILE in _unwritten else read(FILE)
    except LabError as fault:
        return _HIDDEN, f"Your progress is not kept: {fault}"


def change(task: str, by: Callable[[Attempts], Attempts]) -> tuple[Attempts, str]:
    """Write what has become of a task; returns it, and what the student should know."""
    with plain.alone(FILE.parent):
        progress, note = current()
        after = by(progress.tasks.get(task, Attempts()))
        if progress is _HIDDEN:
            return after, note
        changed = Progress({**progress.tasks, task: after}, numbering=2)
        try:
            plain.write(FILE, changed)
            _unwritten.pop(FILE, None)
        except LabError:
            _unwritten[FILE] = changed
            note = f"{note} Your progress is not kept: {FILE} cannot be written.".strip()
    return after, note


def asked_in(notebook: Path) -> list[str]:
    """The tasks of a notebook, in the order in which it asks them."""
    text = notebook.read_text("utf-8", "replace")
    return list(dict.fromkeys(re.findall(r'check\(\\"([\w.]+)\\"', text)))


def summary(names: Iterable[str], file: Path) -> Summary:
    """The table of these tasks; a lecture is the notebook beside the file that asks them."""
    progress, note = current() if file == FILE else read(file)
    lectures = {
        name: notebook.stem
        for notebook in sorted(file.parent.glob("*.ipynb"))
        for name in asked_in(notebook)
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
