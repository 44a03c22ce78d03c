"""The map of the course: links, minutes, what is solved; the server fills it when it opens."""

import asyncio
import json
import re
from pathlib import Path

import nbformat
import pytest

import labkit
from labkit.contents import Contents
from labkit.exercises import attempts
from labkit.exercises.attempts import Attempts, Progress
from labkit.plain import write

NOTEBOOKS = Path(labkit.__path__[0]).parent / "notebooks"
FILES = [path.name for path in sorted(NOTEBOOKS.glob("[0-9]*.ipynb"))]


@pytest.fixture
def folder(tmp_path):
    """The course, in which one task of lecture 00 is solved."""
    for name in FILES:
        (tmp_path / name).write_text((NOTEBOOKS / name).read_text(encoding="utf-8"))
    write(tmp_path / attempts.FILE.name, Progress({"00.kind": Attempts(1, solved=True)}))
    return tmp_path


def test_every_lecture_is_a_link_with_its_minutes_and_what_is_solved(folder):
    course = labkit.course(folder)
    assert [one.file for one in course.lectures] == FILES
    assert (course.lectures[0].solved, course.lectures[0].tasks) == (1, 2)
    page = course._repr_mimebundle_()["text/html"]
    assert [name for name in FILES if f'href="{name}"' not in page] == []
    assert "10 min · 1 of 2 solved" in page
    assert len(re.findall("<li>", page)) == 3  # a demo, a lecture, alone


def test_a_folder_with_some_lectures_has_a_map_of_these(folder):
    for name in FILES[2:]:
        (folder / name).unlink()
    left = folder / FILES[1]
    left.write_text(left.read_text(encoding="utf-8").replace("check(", ""))  # it has no task
    page = labkit.course(folder)._repr_mimebundle_()["text/html"]
    assert set(re.findall(r'href="([^"#]+)"', page)) == set(FILES[:2])
    with pytest.raises(labkit.LabError, match="no notebooks of the course"):
        labkit.course(folder / "..")


def test_a_saved_map_has_nobodys_progress_and_no_machine(folder, monkeypatch):
    monkeypatch.setenv("LABKIT_PICTURES", "still")
    course = labkit.course(folder)
    assert sum(one.solved for one in course.lectures) == 0
    assert course.machine == ""


def test_the_server_fills_the_map_and_trusts_only_what_it_has_written_itself(folder):
    file = folder / "00_start_here.ipynb"
    saved = nbformat.read(file, as_version=4)
    code = [cell for cell in saved.cells if cell.cell_type == "code"]
    code[0].outputs = [nbformat.v4.new_output("display_data", {"text/html": "<script>"})] * 2
    nbformat.write(saved, file)
    model = asyncio.run(Contents(root_dir=str(folder)).get("00_start_here.ipynb"))
    filled, *others = [one for one in model["content"]["cells"] if one["cell_type"] == "code"]
    assert "1 of 2 solved" in json.dumps(filled["outputs"])
    assert [one["output_type"] for one in filled["outputs"]] == ["display_data"]
    page = filled["outputs"][0]["data"]["text/html"]
    assert page != "<script>"
    assert 'class="labkit-player"' in page
    assert filled["metadata"]["trusted"]
    for text in ("{ damaged", "{}", '{"cells": []}'):
        (folder / "10_why_distribute.ipynb").write_text(text)
        model = asyncio.run(Contents(root_dir=str(folder)).get("00_start_here.ipynb"))
        assert "1 of 2 solved" in json.dumps(model["content"]["cells"])
    assert not any(one["metadata"].get("trusted") for one in others)
