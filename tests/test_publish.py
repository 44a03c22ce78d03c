"""`labkit notebooks`: what is saved, and that nothing is saved when a cell fails."""

from __future__ import annotations

import sys

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from labkit import publish
from labkit.kinds import LabError

NOISY = """
import sys, time
print("one"); sys.stdout.flush()
print("\\r 50 %", end="", file=sys.stderr); print("\\r\\x1b[K", end="", file=sys.stderr)
print("two")
"""


@pytest.fixture
def course(tmp_path):
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
    path = write(course, "01_first", NOISY, "6 * 7")
    publish.main(["01"], course)
    saved = nbformat.read(path, as_version=4)
    _, first, second = saved.cells
    assert [(o.name, o.text) for o in first.outputs] == [("stdout", "one\ntwo\n")]
    assert [first.execution_count, second.execution_count] == [1, 2]
    assert second.outputs[0].data["text/plain"] == "42"
    assert "execution" not in first.metadata
    assert saved.metadata.language_info == {"name": "python"}
    assert capsys.readouterr().out.startswith("01_first.ipynb: 2 code cells in ")


def test_no_folder_of_this_machine_is_saved(course):
    source = "import os, sys\nprint(sys.executable, os.getcwd(), sep='\\n')\nos.getcwd() + '/a.py'"
    path = write(course, "01_first", source)
    publish.main([], course)
    printed, value = nbformat.read(path, as_version=4).cells[1].outputs
    assert printed.text.splitlines()[1] == "~/distributed/notebooks"
    assert value.data["text/plain"] == "'~/distributed/notebooks/a.py'"
    if sys.prefix != sys.base_prefix:
        assert printed.text.startswith("~/distributed/.venv/bin/python")


def test_saving_again_changes_nothing(course):
    path = write(course, "01_first", "print('same')")
    publish.main([], course)
    once = path.read_bytes()
    publish.main([], course)
    assert path.read_bytes() == once


@pytest.mark.parametrize(
    ("source", "tags", "said"),
    [
        ("1 / 0", [], "code cell 2: ZeroDivisionError: division by zero"),
        ("while True: pass", ["timeout-1"], "code cell 2: not done after 1 s"),
        ("import os; os._exit(1)", [], "code cell 2: its kernel died"),
        ("import sys; print('odd', file=sys.stderr)", [], "code cell 2 wrote to stderr: 'odd'"),
    ],
)
def test_a_failure_names_the_cell_and_leaves_the_file_alone(course, source, tags, said):
    path = write(course, "02_second", "print(1)", source, tags=tags)
    before = path.read_bytes()
    with pytest.raises(LabError) as caught:
        publish.main(["02_second"], course)
    assert f"02_second.ipynb, {said}" in str(caught.value)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_an_unknown_name_lists_the_notebooks_there_are(course):
    write(course, "01_first", "1")
    with pytest.raises(LabError, match=r"No notebook is called '7'. There are: 01_first\."):
        publish.main(["7"], course)
