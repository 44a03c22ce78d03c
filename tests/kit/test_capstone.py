"""The capstone in a class: three reports for markers, and the check of each."""

import re
from pathlib import Path

import nbformat
import pytest

from labkit.exercises import tasks
from labkit.kit.release import NOTEBOOKS, questions

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "capstone"
ROWS = re.findall(r"\| \**([\w ]+?)\** \| \**(\d+)\** \| \**(\d+)\** \| \**(\d+)\** \|",
                  (FOLDER / "README.md").read_text())  # fmt: skip
NAMES = "weak", "middling", "good"


def read(name):
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


@pytest.mark.parametrize("name", NAMES)
def test_each_report_has_the_marks_that_its_sum_says(name):
    marks = [int(row[1 + NAMES.index(name)]) for row in ROWS]
    assert len(marks) == 7
    assert sum(marks[:-1]) == marks[-1]
    first, last = read(name).cells[0].source, read(name).cells[-1].source
    assert f"{marks[-1]} of 24 points" in first
    for (criterion, *_), points in zip(ROWS[:-1], marks[:-1], strict=True):
        word = {"Quality of the measurement": "Measurement"}.get(
            criterion, criterion.split(" with")[0]
        )
        assert re.search(rf"{word.split(' of')[0]}( \w+)? {points}\b", last), (criterion, points)


@pytest.mark.parametrize(
    ("name", "accepted"), [("weak", False), ("middling", True), ("good", True)]
)
def test_the_check_says_to_each_report_what_its_notebook_shows(name, accepted):
    [question] = questions(read(name))
    space = {}
    exec(question.above, space)
    outcome = tasks()[question.task].check(space["report"])
    assert bool(outcome) is accepted, outcome
    assert outcome.text.splitlines()[0] in nbformat.writes(read(name)).replace("\\n", "\n")


def test_the_template_trains_with_the_frameworks_own_program():
    cells = nbformat.read(NOTEBOOKS / "capstone.ipynb", as_version=4).cells
    code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    assert "Job(" not in code
    assert "strategy.run(" in code
