"""The real nbgrader 0.9.6 works on what `labkit release` writes."""

import os
import subprocess
from ast import literal_eval
from pathlib import Path

import nbformat
import pytest

from labkit.exercises import tasks
from labkit.kit import release

ROOT = Path(__file__).resolve().parents[2]
BIN = ROOT / ".venv" / "nbgrader" / "bin"
LECTURE = "36_queues"
RIGHT = "36.gpu_hours"
SCORES = f"""
from nbgrader.api import Gradebook

with Gradebook("sqlite:///gradebook.db") as book:
    notebook = book.find_submission_notebook("{LECTURE}", "{LECTURE}", "ada")
    print({{grade.name: grade.auto_score for grade in notebook.grades}})
"""

pytestmark = pytest.mark.skipif(
    not (BIN / "nbgrader").exists(),
    reason="nbgrader is not installed: make beside NAMES=nbgrader",
)


def test_nbgrader_generates_grades_and_writes_feedback(tmp_path):
    release.main(tmp_path, ["36"])

    def nbgrader(command):
        environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}",
                       "JUPYTER_PREFER_ENV_PATH": "1", "HOME": str(tmp_path)}  # fmt: skip
        done = subprocess.run(
            [BIN / "nbgrader", command, LECTURE], cwd=tmp_path, env=environment,
            capture_output=True, text=True, timeout=900,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]

    nbgrader("generate_assignment")
    notebook = nbformat.read(tmp_path / "release" / LECTURE / f"{LECTURE}.ipynb", as_version=4)
    # A student may delete what is not locked; nbgrader runs all that is left.
    notebook.cells = [cell for cell in notebook.cells if "nbgrader" in cell.metadata]
    for cell in notebook.cells:
        name = cell.metadata.nbgrader.grade_id
        if name == "36-gpu_hours-answer":
            cell.source = tasks()[RIGHT].solution.strip()
        if name == "36-longest_wait-answer":
            cell.source = "answer = -1"
        if name == "36-longest_wait":
            cell.source = "1"  # tampered: nbgrader puts the test back
    handed_in = tmp_path / "submitted" / "ada" / LECTURE
    handed_in.mkdir(parents=True)
    nbformat.write(notebook, handed_in / f"{LECTURE}.ipynb")
    nbgrader("autograde")
    done = subprocess.run(
        [BIN / "python", "-c", SCORES], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    scores = literal_eval(done.stdout)
    assert scores["36-gpu_hours"] == tasks()[RIGHT].difficulty
    assert sum(scores.values()) == scores["36-gpu_hours"]
    nbgrader("generate_feedback")
    page = (tmp_path / "feedback" / "ada" / LECTURE / f"{LECTURE}.html").read_text()
    assert "is too small" in page
