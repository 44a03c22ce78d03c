"""The lectures are one course: their order, their parts, their minutes and their links."""

import re
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[1]
PATHS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
CELLS = {path: nbformat.read(path, as_version=4).cells for path in PATHS}
MINUTES = {
    path.name[:2]: int(re.search(r"\*\*Minutes:\*\* (\d+)", cells[0].source)[1])
    for path, cells in CELLS.items()
}
README = (ROOT / "README.md").read_text(encoding="utf-8")
START = "\n".join(cell.source for cell in CELLS[PATHS[0]] if cell.cell_type == "markdown")

each = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)


def test_the_numbers_have_no_gap():
    assert list(MINUTES) == [f"{number:02d}" for number in range(len(PATHS))]


@each
def test_a_lecture_has_its_number_and_part_and_at_most_an_hour(path):
    header = CELLS[path][0].source
    assert header.startswith(f"# {path.name[:2]} · ")
    assert re.search(r"\*\*Part:\*\* \d, \w+", header)
    assert MINUTES[path.name[:2]] <= 60


@each
def test_it_ends_with_a_summary_and_the_way_back_and_on(path):
    at = PATHS.index(path)
    last = CELLS[path][-1].source
    found = dict(re.findall(r"\*\*(Previous|Next):\*\* \[[^\]]+\]\(([^)]+)\)", last))
    assert found.get("Previous") == (PATHS[at - 1].name if at else None)
    assert found.get("Next") == (PATHS[at + 1].name if at + 1 < len(PATHS) else None)
    assert "(00_start_here.ipynb#" in last
    assert "(glossary.ipynb)" in last
    assert re.search(r"^## (What you have seen|9 · A checklist)$", last, re.MULTILINE)


@each
def test_its_exercises_have_its_number(path):
    asked = re.findall(r'check\("(\d\d)\.\w+"', "\n".join(cell.source for cell in CELLS[path]))
    assert set(asked) == {path.name[:2]}


def test_the_readme_lists_every_lecture_with_its_minutes():
    rows = re.findall(
        r"^\| (\d\d) \| \[[^\]]+\]\(notebooks/(.+?)\).*\| (\d+) \|", README, re.MULTILINE
    )
    assert [(number, name) for number, name, _ in rows] == [(p.name[:2], p.name) for p in PATHS]
    assert {number: int(minutes) for number, _, minutes in rows} == MINUTES


def test_readme_and_lecture_00_show_the_same_ways_with_the_minutes_of_the_lectures():
    ways = []
    for text in (README, START):
        row = re.search(r"^\| \**a (?:workshop).*\n\| \**a semester.*$", text, re.MULTILINE)[0]
        ways.append(re.findall(r"\b(\d\d) \((\d+)\)", row))
    assert ways[0] == ways[1]
    assert all(MINUTES[number] == int(minutes) for number, minutes in ways[0])
    assert {number for number, _ in ways[0]} == set(MINUTES)
    assert re.findall(r"^\|.* (?:20|90) minutes.*$", START.replace("**", ""), re.MULTILINE) == (
        re.findall(r"^\|.* (?:20|90) minutes.*$", README, re.MULTILINE)
    )
