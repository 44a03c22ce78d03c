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
NUMBERS = [path.name.partition("_")[0] for path in PATHS]  # a second part is 07b
README = (ROOT / "README.md").read_text(encoding="utf-8")
START = "\n".join(cell.source for cell in CELLS[PATHS[0]] if cell.cell_type == "markdown")

each = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)


def test_the_numbers_have_no_gap():
    whole = [one for one in NUMBERS if not one.endswith("b")]
    assert whole == [f"{number:02d}" for number in range(len(whole))]
    assert {one[:2] for one in NUMBERS} == set(whole)


@each
def test_a_lecture_has_its_number_and_part_and_is_read_and_run_within_an_hour(path):
    header = CELLS[path][0].source
    assert header.startswith(f"# {path.name.partition('_')[0]} · ")
    assert re.search(r"\*\*Part:\*\* \d, \w+", header)
    assert int(re.search(r"\*\*Minutes:\*\* (\d+)", header)[1]) <= 60


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
def test_a_cell_that_asks_for_a_guess_shows_no_result(path):
    for cell in CELLS[path]:
        if cell.cell_type == "code" and "labkit.predict(" in cell.source:
            shown = [o.get("text") or o["data"]["text/plain"] for o in cell.outputs]
            lines = "\n".join(shown).splitlines()
            told = ("Not predicted yet", "Write your guess first")
            assert [line for line in lines if not any(one in line for one in told)] == []


def test_the_readme_lists_every_lecture():
    rows = re.findall(r"^\| (\d\db?) \| \[[^\]]+\]\(notebooks/(.+?)\)", README, re.MULTILINE)
    assert rows == [(number, path.name) for number, path in zip(NUMBERS, PATHS, strict=True)]


def test_readme_and_lecture_00_show_the_same_ways_and_the_long_ones_have_every_lecture():
    ways = []
    for text in (README, START):
        row = r"^\| (?:a demo|a lecture|a workshop|a semester).*$"
        ways.append(re.findall(row, text.replace("**", ""), re.MULTILINE))
    assert ways[0] == ways[1]
    assert len(ways[0]) == 4
    assert set(re.findall(r"\b(\d\db?) \(\d+\)", ways[0][3])) == set(NUMBERS)
