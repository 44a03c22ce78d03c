"""How long each lecture takes, by one rule: `python notebooks/minutes.py` writes it everywhere.

Reading and running: 130 words a minute, 15 lines of code a minute, and half a minute for each code
cell, to run it and to look at what it shows. A task takes 3, 8 or 15 minutes more, by its
difficulty. The lecture's header, README and the plans of lecture 00 show them, rounded to five
minutes; of single sections, rounded to one.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat

from labkit.exercises import tasks

FOLDER = Path(__file__).resolve().parent
README = FOLDER.parent / "README.md"
START = FOLDER / "00_start_here.ipynb"
TASK_MINUTES = {1: 3, 2: 8, 3: 15}
HEADER = re.compile(r"\*\*Minutes:\*\* [^·\n]+(?= ·|$)")
ROW = re.compile(r"^(\| (\d\db?) \| .*\| )[^|\n]+( \| [^|\n]+ \|)$", re.MULTILINE)
PLAN = re.compile(r"^\| \**(?:a demo|a lecture|a workshop|a semester).*$", re.MULTILINE)
WHOLE = re.compile(r"\b(\d\db?) \(\d+\)")
SECTIONS = re.compile(r"\b(\d\db?), (sections? )([\d, and to]*\d) \(\d+\)")


def minutes(cells: list[Any]) -> tuple[float, float]:
    """Of some cells of a lecture: reading and running, and all of its tasks."""
    prose = " ".join(cell.source for cell in cells if cell.cell_type == "markdown")
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


def by_section(cells: list[Any]) -> dict[int, float]:
    """Reading and running of each numbered section; 0 is what stands before the first."""
    sections: dict[int, list[Any]] = {}
    number = 0
    for cell in cells:
        heading = re.search(r"^## (\d+) · ", cell.source, re.MULTILINE)
        if heading and cell.cell_type == "markdown":
            number = int(heading[1])
        sections.setdefault(number, []).append(cell)
    return {number: minutes(section)[0] for number, section in sections.items()}


@dataclass(frozen=True)
class Lecture:
    """The minutes of a lecture, as they are shown."""

    reading: int
    with_tasks: int
    sections: dict[int, float]

    def __str__(self) -> str:
        return f"{self.reading} ({self.with_tasks} with all tasks)"


def of_lectures() -> dict[str, Lecture]:
    """Every lecture by its number."""
    found = {}
    for path in sorted(FOLDER.glob("[0-9]*.ipynb")):
        cells = nbformat.read(path, as_version=4).cells
        reading, working = minutes(cells)
        number = path.name.partition("_")[0]
        found[number] = Lecture(_fives(reading), _fives(reading + working), by_section(cells))
    return found


def with_minutes(text: str, found: dict[str, Lecture]) -> str:
    """README, or the page with the plans, with the figures of today."""

    def chosen(one: re.Match[str]) -> str:
        lecture, words, numbers = one.groups()
        first, *rest = [int(number) for number in re.findall(r"\d+", numbers)]
        which = range(first, rest[0] + 1) if "to" in numbers else [first, *rest]
        total = sum(found[lecture].sections[number] for number in which)
        return f"{lecture}, {words}{numbers} ({round(total)})"

    def plan(row: re.Match[str]) -> str:
        whole = WHOLE.sub(lambda one: f"{one[1]} ({found[one[1]].reading})", row[0])
        return SECTIONS.sub(chosen, whole)

    text = ROW.sub(lambda row: f"{row[1]}{found[row[2]]}{row[3]}", text)
    return PLAN.sub(plan, text)


def _fives(value: float) -> int:
    return 5 * max(1, round(value / 5))


def main() -> int:
    """Write all figures, or with `--check` only say which files are out of date."""
    found = of_lectures()
    stale = []
    for path in [*sorted(FOLDER.glob("[0-9]*.ipynb")), README]:
        before = path.read_text(encoding="utf-8")
        if path == README:
            after = with_minutes(before, found)
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
    if "--check" in sys.argv[1:] and stale:
        print(f"Minutes out of date: {', '.join(stale)}. Renew them: python notebooks/minutes.py")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
