"""The course as a map of links: what is solved, how long a lecture takes, what it needs.

>>> labkit.course()                                     # doctest: +SKIP
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from labkit import exercises
from labkit.exercises import attempts
from labkit.exercises.course_page import course_map
from labkit.hardware.survey import machine_text
from labkit.kinds import LabError

PARTS = re.compile(r"\*\*Part:\*\* (\d, [^·]+?) ·.*\*\*Minutes:\*\* (\d+).*\*\*Needs:\*\* ([^·]+)")
WAY = re.compile(r"^\| \*\*(a demo|a lecture)[^|]*\*\* \| (.+?) \|$", re.MULTILINE)
USES = {
    r"env build (\w+)": r"environment \1",
    r"uses? .*GPU|GPUs where": "uses GPUs",
    r"MPI": "uses MPI",
    r"Slurm": "uses Slurm",
}


@dataclass(frozen=True)
class Lecture:
    """What the map says of a lecture."""

    file: str
    title: str
    """With its number: "10 · Ring all-reduce"."""
    part: str
    minutes: int
    needs: str
    """In full, as its first cell says it."""
    uses: str
    """In two words; empty where it needs nothing."""
    solved: int
    tasks: int


@dataclass(frozen=True, repr=False)
class Course:
    """All lectures, the ways through them, and what this machine is. Name it in a cell."""

    lectures: tuple[Lecture, ...]
    ways: tuple[tuple[str, str], ...]
    machine: str

    def __repr__(self) -> str:
        from labkit.views.table import text_table

        rows = [
            [one.title, str(one.minutes), one.uses, f"{one.solved} of {one.tasks}"]
            for one in self.lectures
        ]
        return text_table(["lecture", "minutes", "uses", "tasks solved"], rows, self.machine)

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": course_map(self)}


def course(folder: str | Path = ".") -> Course:
    """The lectures in a folder, with your progress; in a saved notebook with nobody's."""
    saved = os.environ.get("LABKIT_PICTURES") == "still"
    progress = attempts.Progress() if saved else attempts.read(Path(folder, attempts.FILE.name))[0]
    known = exercises.tasks()
    lectures: list[Lecture] = []
    ways: list[tuple[str, str]] = []
    for path in sorted(Path(folder).glob("[0-9]*.ipynb")):
        text = path.read_text(encoding="utf-8")
        first = "".join(json.loads(text)["cells"][0]["source"])
        asked = set(re.findall(r'check\(\\"([\w.]+)\\"', text)) & set(known)
        done = [name for name in asked if name in progress.tasks and progress.tasks[name].solved]
        found = PARTS.search(first)
        if found is None:  # a notebook of one's own
            continue
        needs = found[3].replace("`", "").strip()
        uses = (m.expand(words) for how, words in USES.items() if (m := re.search(how, found[3])))
        title = first.splitlines()[0].removeprefix("# ").partition(": ")[0]
        lectures.append(
            Lecture(path.name, title, found[1], int(found[2]), needs, next(uses, ""),
                    len(done), len(asked))
        )  # fmt: skip
        if not ways:
            cells = json.loads(text)["cells"]
            ways = WAY.findall("\n".join("".join(cell["source"]) for cell in cells))
    if not lectures:
        raise LabError(f"There are no notebooks of the course in {Path(folder).absolute()}.")
    return Course(tuple(lectures), tuple(ways), "" if saved else f"This machine: {machine_text()}.")
