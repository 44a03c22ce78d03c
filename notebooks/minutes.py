"""How long each lecture takes, by one rule: `python notebooks/minutes.py` writes it everywhere.

Reading and running: 130 words a minute, 15 lines of code a minute, and half a minute for each code
cell, to run it and to look at what it shows. A task takes 3, 8 or 15 minutes more, by its
difficulty; the table of ways is looked up, not read. The lecture's header, docs/lectures.md,
lecture 00 and the lecturer's guide show them, rounded to five minutes; of single sections, rounded
to one. The guide also says which sections make the names that a section needs, and
docs/objectives.md which tasks test an objective.
"""

from __future__ import annotations

import os
import re
import symtable
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat

import labkit
from labkit.exercises import tasks
from labkit.exercises.lecture_tasks import texts

FOLDER = Path(__file__).resolve().parent
LECTURES = FOLDER.parent / "docs" / "lectures.md"
OBJECTIVES = FOLDER.parent / "docs" / "objectives.md"
START = FOLDER / "00_start_here.ipynb"
GUIDE = [*sorted((FOLDER.parent / "docs").glob("teaching.md")),
         *sorted((FOLDER.parent / "docs" / "teaching").glob("part*.md"))]  # fmt: skip
TASK_MINUTES = {1: 3, 2: 8, 3: 15}
HEADER = re.compile(r"\*\*Minutes:\*\* [^·\n]+(?= ·|$)")
ROW = re.compile(r"^(\| (\d\d) \| .*\| )[^|\n]+( \| [^|\n]+ \|)$", re.MULTILINE)
PLAN = re.compile(r"^\| \**(?:a demo|a lecture|a workshop|a semester|two days).*$", re.MULTILINE)
WHOLE = re.compile(r"\b(\d\d) \(\d+\)")
HEADING = re.compile(r"^(?=## \d+ · )", re.MULTILINE)
GUIDE_ROW = re.compile(r"\| ([^|]*) \| (\d\d\b[^|]*?) \|(?:[^|]*\|){3}$")
TASK = r"`(\d\d\.\w+)`"
SHEET = re.compile(rf"\| (\d+ \|(?: {TASK})+) \|[^|]*\|$")
GUIDE_SUM = re.compile(r"\| (\*\*[^|]+\*\*) \| \| \|[^|]*\|[^|]*\|$")
JUMP = re.compile(r"(\*\*Out of time\.\*\* Jump to section (\d+))(?: \([^)]*\))?\.(.*)")
SECTIONS = re.compile(r"\b(\d\d), (sections? )([\d, and to]*\d) \(\d+\)")


def minutes(cells: list[Any]) -> tuple[float, float]:
    """Of some cells of a lecture: reading and running, and all of its tasks."""
    prose = " ".join(PLAN.sub("", cell.source) for cell in cells if cell.cell_type == "markdown")
    code = [
        cell.source
        for cell in cells
        if cell.cell_type == "code" and not cell.metadata.get("jupyter", {}).get("source_hidden")
    ]
    lines = sum(bool(line.strip()) for source in code for line in source.splitlines())
    known = tasks()
    asked = set(re.findall(r'check\("(\d\d\.\w+)"', "\n".join(code)))
    working = sum(TASK_MINUTES[known[name].difficulty] for name in asked)
    return len(re.findall(r"\w+", prose)) / 130 + lines / 15 + len(code) / 2, float(working)


def by_section(cells: list[Any]) -> dict[int, list[Any]]:
    """The cells of each numbered section; 0 is what stands before the first."""
    sections: dict[int, list[Any]] = {}
    number = 0
    for cell in cells:
        prose = cell.cell_type == "markdown"
        for part in HEADING.split(cell.source) if prose else [cell.source]:
            heading = re.match(r"## (\d+) · ", part) if prose else None
            number = int(heading[1]) if heading else number
            if part.strip():
                sections.setdefault(number, []).append(nbformat.from_dict({**cell, "source": part}))
    return sections


def first_run(sections: dict[int, list[Any]], wanted: Iterable[int]) -> list[int]:
    """The sections that make what these need: names, and files that a cell writes."""
    made: dict[str, int] = {}
    needed: dict[int, set[int]] = {}
    for number, cells in sections.items():
        here, needed[number] = set(), set()
        for source in (cell.source for cell in cells if cell.cell_type == "code"):
            bound, read = _names(source)
            files = {file for file in made if file.endswith(".py") and _reads(source, file)}
            needed[number] |= {made[name] for name in (read | files) - here - bound if name in made}
            here |= bound
        made |= dict.fromkeys({name for name in here if made.get(name) != 0}, number)
    found = set(wanted)
    while more := {other for one in found for other in needed[one]} - found:
        found |= more
    return sorted(found - set(wanted) - {0})


def _reads(source: str, file: str) -> bool:
    """Whether a cell runs a file, or imports from it."""
    return file in source or re.search(rf"(from|import) {file[:-3]}\b", source) is not None


def _names(source: str) -> tuple[set[str], set[str]]:
    """What a code cell binds, and what it or its functions read; a file is bound by writing it."""
    if file := re.match(r"%%writefile (?:-a )?(\S+)", source):
        return {file[1]}, set()
    table = symtable.symtable(re.sub(r"^[%!].*", "", source, flags=re.MULTILINE), "cell", "exec")
    bound = {
        one.get_name() for one in table.get_symbols() if one.is_assigned() or one.is_imported()
    }
    read, tables = set(), [table]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        read |= {
            one.get_name()
            for one in table.get_symbols()
            if one.is_referenced() and (one.is_global() or table.get_type() == "module")
        }
    return bound, read


@dataclass(frozen=True)
class Lecture:
    """The minutes of a lecture, as they are shown."""

    reading: int
    with_tasks: int
    sections: dict[int, list[Any]]

    def __str__(self) -> str:
        return f"{self.reading} ({self.with_tasks} with all tasks)"

    def of(self, chosen: Iterable[int]) -> tuple[int, int]:
        """Of some sections: reading and running, and with their tasks."""
        reading, working = minutes([cell for number in chosen for cell in self.sections[number]])
        return round(reading), round(reading + working)

    def line(self) -> str:
        """The minutes of every section, in the lecturer's guide."""
        shown = []
        for number in self.sections:
            reading, working = self.of([number])
            shown.append(f"{number}: {reading}" + f" (+{working - reading})" * (working > reading))
        return f"{self}. By section (+ tasks): {' · '.join(shown)}."


def of_lectures() -> dict[str, Lecture]:
    """Every lecture by its number."""
    found = {}
    for path in sorted(FOLDER.glob("[0-9]*.ipynb")):
        cells = nbformat.read(path, as_version=4).cells
        reading, working = minutes(cells)
        number = path.name.partition("_")[0]
        found[number] = Lecture(_fives(reading), _fives(reading + working), by_section(cells))
    return found


def chosen(numbers: str) -> list[int]:
    """The sections that "1, 3 and 5", or "2 to 4", are."""
    first, *rest = [int(number) for number in re.findall(r"\d+", numbers)]
    return list(range(first, rest[0] + 1)) if "to" in numbers else [first, *rest]


def with_minutes(text: str, found: dict[str, Lecture]) -> str:
    """The page of lectures, or that with the plans, with the figures of today."""

    def some(one: re.Match[str]) -> str:
        lecture, words, numbers = one.groups()
        return f"{lecture}, {words}{numbers} ({found[lecture].of(chosen(numbers))[0]})"

    def plan(row: re.Match[str]) -> str:
        whole = WHOLE.sub(lambda one: f"{one[1]} ({found[one[1]].reading})", row[0])
        return SECTIONS.sub(some, whole)

    text = ROW.sub(lambda row: f"{row[1]}{found[row[2]]}{row[3]}", text)
    return PLAN.sub(plan, text)


def guide(text: str, found: dict[str, Lecture]) -> str:
    """A part of the lecturer's guide: rows of plans with their sums, and each lecture's minutes."""
    lecture, lines, sums = "", [], (0, 0)
    for line in text.splitlines():
        shown = line
        if entry := re.match(r"## (\d\d) · ", line):
            lecture = entry[1]
        if line.startswith("|---"):
            sums = 0, 0
        elif row := GUIDE_ROW.match(line):
            items = [_item(one, found) for one in row[2].split(" · ")]
            reading, working = (sum(item[at] for item in items) for at in (1, 2))
            sums = sums[0] + reading, sums[1] + working
            shown = f"| {row[1]} | {row[2]} | {items[0][0]} | {reading} | {working} |"
        elif sheet := SHEET.match(line):
            known = [TASK_MINUTES[tasks()[name].difficulty] for name in re.findall(TASK, sheet[1])]
            shown = f"| {sheet[1]} | {sum(known)} |"
        elif total := GUIDE_SUM.match(line):
            shown = f"| {total[1]} | | | **{sums[0]}** | **{sums[1]}** |"
            sums = 0, 0
        elif line.startswith("**Minutes.**"):
            shown = f"**Minutes.** {found[lecture].line()}"
        elif jump := JUMP.match(line):
            before = first_run(found[lecture].sections, [int(jump[2])])
            after = (
                f"section{'s' * (len(before) > 1)} {_list(before)}"
                if before
                else "the first cells only"
            )
            took = found[lecture].of([int(jump[2])])[0]
            shown = f"{jump[1]} ({took} minutes; it needs {after}).{jump[3]}"
        lines.append(shown)
    return "\n".join(lines) + "\n"


def objectives(text: str) -> str:
    """The tasks of each objective, as their headings name it, and the lectures that ask them."""

    def row(found: re.Match[str]) -> str:
        names = [one.name for one in texts().values() if one.head["objective"] == found[2]]
        lectures = sorted({name[:2] for name in names})
        return f"{found[1]}| {', '.join(lectures)} | {' '.join(f'`{name}`' for name in names)} |"

    return re.sub(r"^(\| (\d+) \|[^|]*\|[^|]*)\|[^|]*\|[^|]*\|$", row, text, flags=re.MULTILINE)


def _item(text: str, found: dict[str, Lecture]) -> tuple[str, int, int]:
    """Of a lecture in a plan: what to run before it, its minutes, and those with tasks."""
    number, _, numbers = text.partition(", ")
    lecture = found[number]
    if not numbers:
        return "–", lecture.reading, lecture.with_tasks
    asked = chosen(numbers)
    return _list(first_run(lecture.sections, asked)) or "–", *lecture.of(asked)


def _list(numbers: list[int]) -> str:
    *some, last = [str(number) for number in numbers] or [""]
    return f"{', '.join(some)} and {last}" if some else last


def _fives(value: float) -> int:
    return 5 * max(1, round(value / 5))


def main() -> int:
    """Write all figures, or with `--check` only say which files are out of date."""
    found = of_lectures()
    stale = []
    for path in [*sorted(FOLDER.glob("[0-9]*.ipynb")), LECTURES, OBJECTIVES, *GUIDE]:
        before = path.read_text(encoding="utf-8")
        if path == LECTURES:
            after = with_minutes(before, found)
        elif path == OBJECTIVES:
            after = objectives(before)
        elif path in GUIDE:
            after = guide(before, found)
        else:
            number = path.name.partition("_")[0]
            notebook = nbformat.read(path, as_version=4)
            first = notebook.cells[0]
            first.source = HEADER.sub(f"**Minutes:** {found[number]}", first.source)
            for cell in notebook.cells if path == START else ():
                if cell.cell_type == "markdown":
                    cell.source = with_minutes(cell.source, found)
            after = nbformat.writes(notebook) + "\n"
        if after != before:
            stale.append(path.name)
            if "--check" not in sys.argv[1:]:
                path.write_text(after, encoding="utf-8")
    os.environ["LABKIT_PICTURES"] = "still"  # the map without progress and machine
    start = nbformat.read(START, as_version=4)
    [cell] = [one for one in start.cells if one.source.endswith("labkit.course()")]
    today = labkit.course(FOLDER)._repr_mimebundle_()
    if cell.outputs[0].data != today:
        cell.outputs[0].data = today
        stale.append(f"the map in {START.name}")
        if "--check" not in sys.argv[1:]:
            START.write_text(nbformat.writes(start) + "\n", encoding="utf-8")
    if "--check" in sys.argv[1:] and stale:
        print(f"Minutes out of date: {', '.join(stale)}. Renew them: python notebooks/minutes.py")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
