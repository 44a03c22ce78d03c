"""The root conftest.py: what goes wrong in a notebook fails soon and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import nbformat
import psutil
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

ROOT = Path(__file__).parent.parent
DEADLINE = 240  # for all of these together; they take about 40 s

LEAVE_A_TRACE = """
import os, pathlib, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
with open("pids.txt", "a") as file:
    file.write(f"{os.getpid()} {child.pid} ")
"""
STUBBORN = """
import time
while True:
    try:
        while True:
            print("on and on")
            time.sleep(0.1)
    except KeyboardInterrupt:
        pass
"""
SAYS_OFF = """
import os
print([os.environ.get(f"LABKIT_{name}") for name in ("PROGRESS", "PICTURES")])
print(os.environ.get("MPLBACKEND"))
"""
INLINE = "['off', 'still']\nmodule://matplotlib_inline.backend_inline\n"


def cell(source, printed=None, *, tags=(), count=1):
    outputs = [new_output("stream", name="stdout", text=printed)] if printed else []
    made = new_code_cell(source, outputs=outputs, execution_count=count)
    made.metadata["tags"] = list(tags)
    return made


NOTEBOOKS = {
    "good": [cell(LEAVE_A_TRACE), cell("print(6 * 7)", "42\n")],
    "wrong": [cell("print(6 * 7)", "41\n")],
    "exits": [cell(LEAVE_A_TRACE), cell("import os; os._exit(3)"), cell("print(1)", "1\n")],
    "killed": [cell("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")],
    "endless": [cell(LEAVE_A_TRACE), cell("while True: pass", tags=["timeout-2"])],
    "stubborn": [cell(LEAVE_A_TRACE), cell(STUBBORN, tags=["timeout-2"])],
    "slow": [cell("import time; time.sleep(6)", tags=["timeout-60"])],
    "unrun": [cell("print(1)", count=None)],
    "told": [cell(SAYS_OFF, INLINE)],
}


def run_pytest(folder, *arguments):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "-p", "conftest"]
    return subprocess.run(
        [*command, "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    folder = tmp_path_factory.mktemp("guard")
    for name, cells in NOTEBOOKS.items():
        nbformat.write(new_notebook(cells=cells), folder / f"{name}.ipynb")
    # Three seconds for a cell, so that only the tag can have let the slow one finish.
    run_pytest(folder, "--junit-xml=report.xml", "--nbval-cell-timeout=3", folder)
    return folder


def outcome(folder, name):
    """Of each cell of a notebook: None when it passed, else what pytest says of it."""
    cases = ET.parse(folder / "report.xml").iter("testcase")
    mine = [case for case in cases if case.get("classname", "").endswith(f"{name}.ipynb")]
    assert mine, f"{name}.ipynb was not run"
    told = [[part for part in case if part.tag in ("failure", "error", "skipped")] for case in mine]
    return [parts[0].get("message") + (parts[0].text or "") if parts else None for parts in told]


def test_a_notebook_that_does_as_it_says_passes(ran):
    assert outcome(ran, "good") == [None, None]


def test_another_output_is_a_failure(ran):
    assert "Cell outputs differ" in outcome(ran, "wrong")[0]


def test_a_kernel_that_exits_is_a_failure_of_the_cell_that_did_it(ran):
    before, at, after = outcome(ran, "exits")
    assert before is None
    assert "The kernel died while this cell ran (exit status 3)" in at
    assert after is not None


def test_a_kernel_that_was_killed_says_that_memory_is_the_usual_reason(ran):
    assert "out of memory" in outcome(ran, "killed")[0]


@pytest.mark.parametrize("name", ["endless", "stubborn"])
def test_a_cell_that_never_ends_is_a_failure_at_its_own_time(ran, name):
    assert "2 seconds exceeded" in outcome(ran, name)[1]


def test_a_tag_gives_a_slow_cell_more_time(ran):
    assert outcome(ran, "slow") == [None]


def test_a_cell_that_was_never_run_is_a_failure(ran):
    assert "make notebooks" in outcome(ran, "unrun")[0]


def test_the_kernel_draws_no_progress_lines_and_plots_inline(ran):
    assert outcome(ran, "told") == [None]


def test_no_process_of_any_kernel_is_left(ran):
    pids = [int(word) for word in (ran / "pids.txt").read_text().split()]
    assert len(pids) == 8
    assert [pid for pid in pids if is_running(pid)] == []


def is_running(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{ no notebook", "is no notebook"),
        ('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}', "has no code cell"),
    ],
)
def test_a_file_that_holds_nothing_to_run_is_a_failure(tmp_path, content, reason):
    (tmp_path / "bad.ipynb").write_text(content)
    done = run_pytest(tmp_path, "bad.ipynb")
    assert done.returncode != 0
    assert reason in done.stdout


def test_a_changed_nbval_is_refused_and_not_trusted(tmp_path):
    nbformat.write(new_notebook(cells=NOTEBOOKS["good"]), tmp_path / "good.ipynb")
    (tmp_path / "newer.py").write_text(
        "from nbval.kernel import RunningKernel\ndel RunningKernel.await_reply\n"
    )
    done = run_pytest(tmp_path, "-p", "newer", "good.ipynb")
    assert done.returncode != 0
    assert "nbval has changed inside (await_reply" in done.stderr + done.stdout
