"""The lecturer's guide is complete: an entry for each lecture, and an objective for each task."""

import ast
import re
import sys
from pathlib import Path

import nbformat
import pytest

from labkit.exercises import tasks

ROOT = Path(__file__).parents[2]
PARTS = sorted((ROOT / "docs" / "teaching").glob("part*.md"))
OBJECTIVES = (ROOT / "docs" / "objectives.md").read_text(encoding="utf-8")
LECTURES = {path.name.partition("_")[0]: path for path in (ROOT / "notebooks").glob("[0-9]*.ipynb")}
ENTRIES = {
    entry.partition(" ")[0]: entry
    for part in PARTS
    for entry in re.split("^## ", part.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
}
WAYS = re.findall(
    r"^\| ([^|]+ in PyTorch|a workshop[^|]+|a semester[^|]+) \| (.+) \|$",
    (ROOT / "docs" / "lectures.md").read_text(encoding="utf-8"),
    re.MULTILINE,
)
TASK = re.compile(r"`((?:\d\d|self)\.[a-z]\w*)`")
each = pytest.mark.parametrize("number", sorted(LECTURES))


@pytest.fixture(scope="module")
def minutes():
    sys.path.insert(0, str(ROOT / "notebooks"))
    import minutes

    yield minutes
    sys.path.remove(str(ROOT / "notebooks"))


def code_of(minutes, number):
    """The code of each section of a lecture."""
    cells = nbformat.read(LECTURES[number], as_version=4).cells
    return {
        section: [one.source for one in found if one.cell_type == "code"]
        for section, found in minutes.by_section(cells).items()
    }


def test_each_lecture_has_an_entry_in_the_order_of_the_course():
    assert list(ENTRIES) == sorted(LECTURES)


@each
def test_the_cell_and_the_sections_that_an_entry_names_exist(number, minutes):
    code = code_of(minutes, number)
    section, cell = re.search(
        r"Do not miss\.\*\* Section (\d+), `(.+?)`:", ENTRIES[number]
    ).groups()
    assert any(cell in one for one in code[int(section)]), cell
    named = re.findall(r"\bsections? ([\d, and]*\d)", ENTRIES[number], re.IGNORECASE)
    assert {int(one) for text in named for one in re.findall(r"\d+", text)} <= set(code)


@each
def test_the_tasks_that_an_entry_names_are_of_its_lecture_and_its_wrong_answers_are_wrong(number):
    assert {name[:2] for name in TASK.findall(ENTRIES[number])} <= {number[:2]}
    assert set(TASK.findall(ENTRIES[number])) <= set(tasks())
    for name, answer in re.findall(r"^- `([\w.]+)` → `(.+?)`:", ENTRIES[number], re.MULTILINE):
        assert tasks()[name].check(ast.literal_eval(answer)).state == "wrong", name


def test_each_task_is_under_one_objective_and_each_objective_has_tasks():
    rows = re.findall(r"^\| (\d+) \| .*\| ([^|]*) \|$", OBJECTIVES, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, len(rows) + 1))
    assert all(TASK.findall(names) for _, names in rows)
    assert sorted(TASK.findall(OBJECTIVES)) == sorted(tasks())


@pytest.mark.parametrize("way", [way for name, way in WAYS if "PyTorch" in name])
def test_a_way_in_pytorch_has_all_of_part_5_and_never_opens_tensorflow(way, minutes):
    shown = re.findall(r"\b(\d\d)(?:, sections? ([\d, and to]*\d))? \(\d+\)", way)
    assert {number for number, _ in shown} >= {one for one in LECTURES if one[0] == "5"}
    for number, sections in shown:
        code = code_of(minutes, number)
        cells = minutes.by_section(nbformat.read(LECTURES[number], as_version=4).cells)
        chosen = minutes.chosen(sections) if sections else list(code)
        for section in [0, *chosen, *minutes.first_run(cells, chosen)]:
            opened = r"\b(tensorflow|keras|labkit\.replicas|pipelines import training)\b"
            assert not re.search(opened, "\n".join(code[section])), (number, section)


def test_no_day_of_a_way_is_longer_than_six_hours_and_no_week_than_two():
    limit = {"workshop": 360, "days": 360, "semester": 125}
    for name, way in WAYS:
        for part in re.split(r" · (?=day \d|\d+: )", way.partition(" · at home")[0]):
            took = sum(map(int, re.findall(r"\((\d+)\)", part)))
            assert took <= next(most for word, most in limit.items() if word in name), part
