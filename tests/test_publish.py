"""`labkit notebooks`: what is saved, and that nothing is saved when a cell fails."""

from __future__ import annotations

import asyncio
import copy
import re
import sys

import nbformat
import pytest
from ipykernel.ipkernel import IPythonKernel
from nbconvert import HTMLExporter
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from labkit import publish
from labkit.contents import Contents, Offline
from labkit.kinds import LabError

NOISY = """
import sys, time
print("one"); sys.stdout.flush()
print("\\r 50 %", end="", file=sys.stderr); print("\\r\\x1b[K", end="", file=sys.stderr)
print("two")
"""


@pytest.fixture
def course(tmp_path, monkeypatch):
    monkeypatch.setattr("labkit.hardware.machine.busy", lambda seconds: 0.0)
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "images").mkdir()
    return tmp_path


def write(course, name, *sources, tags=()):
    cells = [new_code_cell(source, metadata={"tags": list(tags)}) for source in sources]
    opening = new_markdown_cell("# Title")
    path = course / "notebooks" / f"{name}.ipynb"
    nbformat.write(new_notebook(cells=[opening, *cells]), path)
    return path


def test_a_notebook_is_saved_as_a_reader_should_see_it(course, capsys):
    folders = "import os, sys\nprint(sys.executable)\nos.getcwd() + '/a.py'"
    path = write(course, "01_first", NOISY, "6 * 7", folders)
    publish.main(["01"], course)
    once = path.read_bytes()
    saved = nbformat.read(path, as_version=4)
    _, noisy, value, placed = saved.cells
    assert [(o.name, o.text) for o in noisy.outputs] == [("stdout", "one\ntwo\n")]
    assert [noisy.execution_count, value.execution_count] == [1, 2]
    assert value.outputs[0].data["text/plain"] == "42"
    assert placed.outputs[1].data["text/plain"] == "'~/distributed/notebooks/a.py'"
    if sys.prefix != sys.base_prefix:
        assert placed.outputs[0].text.startswith("~/distributed/.venv/bin/python")
    assert "execution" not in noisy.metadata
    assert saved.metadata == {
        "kernelspec": publish.KERNEL,
        "language_info": IPythonKernel.language_info,
    }
    assert capsys.readouterr().out.startswith("01_first.ipynb: 3 code cells in ")
    publish.main([], course)
    assert path.read_bytes() == once


@pytest.mark.parametrize(
    ("source", "tags", "reason"),
    [
        ("1 / 0", [], "ZeroDivisionError: division by zero"),
        ("import sys; print('odd', file=sys.stderr)", [], "stderr: 'odd'"),
    ],
)
def test_a_failure_names_the_cell_and_leaves_the_file_alone(course, source, tags, reason):
    path = write(course, "02_second", "print(1)", source, tags=tags)
    before = path.read_bytes()
    with pytest.raises(LabError) as caught:
        publish.main(["02_second"], course)
    assert "02_second.ipynb, code cell 2" in str(caught.value)
    assert reason in str(caught.value)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("load", [0.9, 0.0])
def test_a_busy_machine_leaves_what_was_measured_before(course, monkeypatch, capsys, load):
    """Busy before or after the run, or in between: then labkit.compare says so in an output."""
    clock = f"import time; print(time.monotonic(), {publish.NOTE!r} * {load == 0})"
    path = write(course, "03_third", clock, clock, tags=["nbval-ignore-output"])
    assert publish.main(["03"], course) == 0
    before = nbformat.read(path, as_version=4)
    changed = copy.deepcopy(before)
    changed.cells[2].outputs = []
    nbformat.write(changed, path)
    monkeypatch.setattr("labkit.hardware.machine.busy", lambda seconds: load)
    publish.main(["03"], course)
    after = nbformat.read(path, as_version=4)
    assert after.cells[1].outputs == before.cells[1].outputs
    assert after.cells[2].outputs != before.cells[2].outputs
    said = capsys.readouterr().out
    assert "busy, 1 measured" in said
    assert "1 new of a busy machine" in said


def test_a_cell_whose_text_needs_a_verdict_is_not_saved_without_one(course):
    path = write(course, "04_fourth", "print('cannot tell which')", tags=["needs-verdict"])
    before = path.read_bytes()
    with pytest.raises(LabError, match="code cell 1: its text needs a verdict"):
        publish.main(["04"], course)
    assert path.read_bytes() == before


def test_an_unknown_name_lists_the_notebooks_there_are(course):
    write(course, "01_first", "1")
    with pytest.raises(LabError, match=r"'7'.*01_first"):
        publish.main(["01", "7"], course)


def test_the_server_gives_a_notebook_the_version_of_python_that_is_here(course):
    """Another version than its kernel's, and JupyterLab marks it as changed on opening."""
    other = {**IPythonKernel.language_info, "version": "3.1.4"}
    metadata = {"kernelspec": publish.KERNEL, "language_info": other}
    nbformat.write(new_notebook(metadata=metadata), course / "notebooks" / "01_first.ipynb")
    contents = Contents(root_dir=str(course))
    model = asyncio.run(contents.get("notebooks/01_first.ipynb"))
    assert model["content"]["metadata"]["language_info"] == IPythonKernel.language_info
    assert asyncio.run(contents.get("notebooks"))["type"] == "directory"


def test_an_exported_page_has_its_formulas_inside_and_asks_the_network_for_nothing():
    prose = (
        "Let $n_1 * n_2$ be large, and `$HOME`:\n\n$$\n\\frac{n - 1}{n}\n$$\n\n```\necho $A $B\n```"
    )
    exporter = HTMLExporter(preprocessors=[Offline])
    page, _ = exporter.from_notebook_node(new_notebook(cells=[new_markdown_cell(prose)]))
    assert page.count("<math") == 2
    assert "<mfrac>" in page
    assert "$HOME" in page
    assert "$A $B" in re.sub(r"<[^>]+>", "", page)
    assert re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(?!data:)[^"]+', page) == []
