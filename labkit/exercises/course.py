"""The course as a map of links: what is solved, how long a lecture takes, what it needs.

>>> labkit.course()                                     # doctest: +SKIP
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from html import escape
from itertools import groupby
from pathlib import Path

from labkit import exercises
from labkit.exercises import attempts
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

# Readable on the ground of any theme; what is solved is told in words, too.
SOLVED, LEFT = "#009E73", "rgba(128, 128, 128, 0.35)"
ROW = "display: flex; flex-wrap: wrap; gap: 4px 24px; align-items: flex-start"
RING, MAP = "flex: 1 1 340px; min-width: 0; max-width: 440px", "flex: 3 1 400px; min-width: 0"
CHIPS = "display: flex; flex-wrap: wrap; gap: 2px 12px; margin: 0 0 5px; line-height: 1.4"
GRID = "display: grid; grid-template-columns: repeat(auto-fit, minmax(165px, 1fr)); gap: 6px 14px"
CARD = "margin: 0 0 7px; line-height: 1.25"
SMALL = "font-size: 0.85em"
WAYS_SECTION = "00_start_here.ipynb#6-·-Ways-through-the-course"


@dataclass(frozen=True)
class Lecture:
    """What the map says of a lecture."""

    file: str
    title: str
    """With its number: "22 · Ring all-reduce"."""
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
        return {"text/plain": repr(self), "text/html": _page(self)}


def course(folder: str | Path = ".") -> Course:
    """The lectures in a folder, with your progress; a saved notebook shows none."""
    saved = os.environ.get("LABKIT_PICTURES") == "still"
    progress = attempts.Progress() if saved else attempts.read(Path(folder, attempts.FILE.name))[0]
    known = exercises.tasks()
    lectures: list[Lecture] = []
    ways: list[tuple[str, str]] = []
    for path in sorted(Path(folder).glob("[0-9]*.ipynb")):
        try:
            text = path.read_text(encoding="utf-8")
            cells = ["".join(cell["source"]) for cell in json.loads(text)["cells"]]
            found = PARTS.search(cells[0])
        except (OSError, RecursionError, ValueError, LookupError, TypeError):
            continue  # damaged, or empty
        asked = set(attempts.asked_in(path)) & set(known)
        done = [name for name in asked if name in progress.tasks and progress.tasks[name].solved]
        if found is None:  # a notebook of one's own
            continue
        needs = found[3].replace("`", "").strip()
        uses = (m.expand(words) for how, words in USES.items() if (m := re.search(how, found[3])))
        title = cells[0].splitlines()[0].removeprefix("# ").partition(": ")[0]
        lectures.append(
            Lecture(path.name, title, found[1], int(found[2]), needs, next(uses, ""),
                    len(done), len(asked))
        )  # fmt: skip
        if not ways:
            ways = WAY.findall("\n".join(cells))
    if not lectures:
        raise LabError(f"There are no notebooks of the course in {Path(folder).absolute()}.")
    return Course(tuple(lectures), tuple(ways), "" if saved else f"This machine: {machine_text()}.")


def _page(course: Course) -> str:
    files = {one.title.partition(" ")[0]: one.file for one in course.lectures}
    parts = {
        escape(part.replace(",", " ·")): list(lectures)
        for part, lectures in groupby(course.lectures, key=lambda one: one.part)
    }
    rows = "".join(
        f'<div style="{CHIPS}"><strong>{part}</strong>{"".join(map(_chip, lectures))}</div>'
        for part, lectures in parts.items()
    )
    columns = "".join(
        f"<div><p><strong>{part}</strong></p>{''.join(map(_card, lectures))}</div>"
        for part, lectures in parts.items()
    )
    ways = [
        f"<li><strong>{name}</strong>: {_linked(plan, files)}</li>" for name, plan in course.ways
    ]
    left = next((one for one in course.lectures if one.solved < one.tasks), course.lectures[0])
    ways.append(
        f'<li><strong>alone</strong>: your next lecture is <a href="{left.file}">'
        f"{escape(left.title)}</a></li>"
    )
    return (
        f'<div class="labkit-course"><div style="{ROW}">{_ring()}'
        f'<div style="{MAP}">{rows}</div></div><p>Three ways, with minutes '
        f'(<a href="{WAYS_SECTION}">more</a>):</p>'
        f"<ul>{''.join(ways)}</ul><details><summary>Minutes, tasks and needs of each lecture"
        f'</summary><div style="{GRID}">{columns}</div></details>'
        f"<p>{escape(course.machine)}</p></div>"
    )


def _ring() -> str:
    """A ring all-reduce that plays as soon as it is in sight; a saved notebook holds no code."""
    from labkit.collectives import programs, run

    if os.environ.get("LABKIT_PICTURES") == "still":
        return ""
    player = run(programs.ring_all_reduce, ranks=4).player(brief=True)
    return f'<div style="{RING}">{player.html()}</div>'


def _chip(one: Lecture) -> str:
    """The lecture's link, underlined as far as its tasks are solved."""
    share = round(100 * one.solved / one.tasks) if one.tasks else 0
    line = f"linear-gradient(to right, {SOLVED} {share}%, {LEFT} {share}%)"
    return (
        f'<a href="{one.file}" title="{escape(_facts(one))}" style="text-decoration: none; '
        f'background: {line} left bottom / 100% 2px no-repeat">{escape(one.title)}</a>'
    )


def _card(one: Lecture) -> str:
    return (
        f'<div style="{CARD}"><a href="{one.file}">{escape(one.title)}</a><br>'
        f'<span style="{SMALL}" title="Needs: {escape(one.needs)}">{escape(_facts(one))}</span>'
        "</div>"
    )


def _facts(one: Lecture) -> str:
    solved = f"{one.solved} of {one.tasks} solved" if one.tasks else ""
    return " · ".join(filter(None, (f"{one.minutes} min", solved, one.uses)))


def _linked(plan: str, files: dict[str, str]) -> str:
    """A plan such as "03, sections 1 and 2 (8) · 10 (60)", its lectures as links."""

    def link(found: re.Match[str]) -> str:
        number = found[0]  # of a folder with some of the lectures, the others are no links
        return f'<a href="{files[number]}">{number}</a>' if number in files else number

    return re.sub(r"(?:(?<=^)|(?<=· ))\d\d", link, escape(plan))
