"""`make vary`: each row runs and is kept, whatever happened to the one before it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

SPEC = importlib.util.spec_from_file_location(
    "vary", Path(__file__).parent.parent / ".ci" / "vary.py"
)
vary = sys.modules["vary"] = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(vary)
Row = vary.Row

TESTS = """
import os
def test_one(): assert os.environ.get("COLOUR") != "red"
def test_two(): assert 1 + 1 == 2
"""


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    for name in "notebooks", "tests/exercises", ".venv":
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "tests" / "exercises" / "test_some.py").write_text(TESTS)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    for name, value in ("ROOT", tmp_path), ("KEPT", tmp_path / "varied.md"), ("JOBS", "0"):
        monkeypatch.setattr(vary, name, value)
    return tmp_path


def results(file):
    """The third column of the table, by the first."""
    rows = [line.split(" | ") for line in file.read_text().splitlines() if line.startswith("| ")]
    return {row[0][2:]: row[2] for row in rows[1:]}


@pytest.mark.stress
def test_a_red_row_stops_no_other_and_each_keeps_its_result(checkout, monkeypatch):
    edit = "tests/exercises/test_some.py", r"1 \+ 1", "1 + 2"
    red, green = Row("a", "", {"COLOUR": "red"}), Row("b", "", burners=1)
    rows = red, green, Row("c", "", {}, lambda: "why"), Row("d", "", copied=True, edits=(edit,))
    monkeypatch.setattr(vary, "ROWS", rows)
    assert vary.main([]) == 1
    kept = results(vary.KEPT)
    assert "1 passed, 1 failed" in kept["a"]
    assert "test_one" in kept["a"]
    assert "2 passed, 0 failed" in kept["b"]
    assert "why" in kept["c"]
    assert "test_two" in kept["d"]
    assert (checkout / edit[0]).read_text() == TESTS
    vary.keep(red, "repaired", 1.0)
    assert results(vary.KEPT) == {**kept, "a": "repaired"}


def test_what_rows_change_is_there_to_be_changed(tmp_path):
    copy = vary.copy_of_checkout(tmp_path)
    for edit in {(*vary.CHECKSUM, ""), *(edit for row in vary.ROWS for edit in row.edits)}:
        vary.change(copy, *edit)
