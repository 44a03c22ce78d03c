"""The lectures are one course: their order, their parts, their minutes and their links."""

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[1]
PATHS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
CELLS = {path: nbformat.read(path, as_version=4).cells for path in PATHS}
NUMBERS = [path.name.partition("_")[0] for path in PATHS]  # the part, and which of its lectures
LECTURES = (ROOT / "docs/lectures.md").read_text(encoding="utf-8")
START = "\n".join(cell.source for cell in CELLS[PATHS[0]] if cell.cell_type == "markdown")

each = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)


def test_the_numbers_of_a_part_have_no_gap():
    parts = {part: [one for one in NUMBERS if one[0] == part] for part in "0123456"}
    for part, numbers in parts.items():
        assert numbers == [f"{part}{lecture}" for lecture in range(len(numbers))] != []
    assert sum(map(len, parts.values())) == len(NUMBERS)


@each
def test_a_lecture_has_its_number_and_part_and_is_read_and_run_within_an_hour(path):
    header = CELLS[path][0].source
    assert header.startswith(f"# {path.name.partition('_')[0]} · ")
    assert re.search(r"\*\*Part:\*\* \d, \w+", header)
    assert int(re.search(r"\*\*Minutes:\*\* (\d+)", header)[1]) <= 60


@each
def test_sections_and_what_a_lecture_comes_after_have_their_numbers(path):
    prose = "\n".join(cell.source for cell in CELLS[path] if cell.cell_type == "markdown")
    sections = re.findall(r"^## (\d+) · ", prose, re.MULTILINE)
    assert sections == [str(number) for number in range(1, len(sections) + 1)]
    for number, title in re.findall(
        r"(\d\d) ([^,\n]+)", prose.partition("**Comes after:**")[2].partition("\n")[0]
    ):
        assert any(CELLS[one][0].source.startswith(f"# {number} · {title}") for one in PATHS)


def test_minutes_everywhere_follow_from_the_one_rule():
    rule = [sys.executable, ROOT / "notebooks" / "minutes.py", "--check"]
    done = subprocess.run(rule, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


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


@each
def test_a_guess_is_asked_for_before_its_cell_shows_anything(path):
    for cell in CELLS[path]:
        if cell.cell_type == "code" and "labkit.predict(" in cell.source:
            assert cell.outputs[0]["data"]["text/plain"].startswith("Your guess first: ")
            assert "print" not in cell.source.partition("labkit.predict(")[0]


def test_the_page_of_lectures_lists_every_one():
    rows = re.findall(r"^\| (\d\d) \| \[[^\]]+\]\(../notebooks/(.+?)\)", LECTURES, re.MULTILINE)
    assert rows == [(number, path.name) for number, path in zip(NUMBERS, PATHS, strict=True)]


def test_the_page_of_lectures_and_lecture_00_show_the_same_ways_through_all():
    ways = []
    for text in (LECTURES, START):
        row = r"^\| (?:a demo|a lecture|a workshop|a semester|two days).*$"
        ways.append(re.findall(row, text.replace("**", ""), re.MULTILINE))
    assert ways[0] == ways[1]
    assert len(ways[0]) == 6
    assert set(re.findall(r"\b(\d\d)(?:, sections? [^(]+)? \(", ways[0][3])) == set(NUMBERS)
