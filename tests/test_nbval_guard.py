"""The root conftest.py: a notebook that goes wrong fails soon, says why, and leaves no process."""

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

from labkit import kernel

ROOT = Path(__file__).parent.parent

START_A_CHILD = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
with open(os.environ["PIDS"], "a") as file:
    file.write(f"{os.getpid()} {child.pid} ")
"""
START_MPI = """
try:
    from mpi4py import MPI
except ImportError:
    pass
"""
SHOW_SETTINGS = """
import os
print([os.environ.get(f"LABKIT_{name}") for name in ("PROGRESS", "PICTURES", "ROUNDS")])
print(os.environ.get("MPLBACKEND"))
"""
SETTINGS = "['off', 'still', '1']\nmodule://matplotlib_inline.backend_inline\n"


def cell(source, printed=None, *, count=1):
    outputs = [new_output("stream", name="stdout", text=printed)] if printed else []
    return new_code_cell(source, outputs=outputs, execution_count=count)


# One kernel for all cells that leave it alive; the ones that do not are the last of theirs.
NOTEBOOKS = {
    "cells": [
        cell(START_A_CHILD + START_MPI),
        cell("print(6 * 7)", "42\n"),
        cell(SHOW_SETTINGS, SETTINGS),
        cell("print(6 * 7)", "41\n"),
        cell("print(1)", count=None),
    ],
    "exits": [cell(START_A_CHILD), cell("import os; os._exit(3)"), cell("print(1)", "1\n")],
    "killed": [cell("import os; os.kill(os.getpid(), 9)"), cell("print(1)", "1\n")],
    "endless": [cell(START_A_CHILD), cell("import threading; threading.Event().wait()")],
    "empty": [],
    "pytorch": [cell("import os; print(os.environ.get('LABKIT_KERNEL'))", "torch\n")],
}
KERNELS = {"pytorch": kernel.SPEC}


def run_pytest(folder, *arguments):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    environment |= {"PYTHONPATH": str(ROOT), "PIDS": f"{folder}/pids.txt"}
    command = [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "-p", "conftest"]
    return subprocess.run(
        [*command, "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A folder with the notebooks above, their report and the ids of the processes they started."""
    folder = tmp_path_factory.mktemp("guard")
    for name, cells in NOTEBOOKS.items():
        metadata = {"kernelspec": KERNELS[name]} if name in KERNELS else {}
        nbformat.write(new_notebook(cells=cells, metadata=metadata), folder / f"{name}.ipynb")
    (folder / "damaged.ipynb").write_text("{ no notebook")
    (folder / "short.py").write_text("import conftest\nconftest.GRACE_SECONDS = 1.0\n")
    options = ("-p", "short", "--continue-on-collection-errors", "--nbval-cell-timeout=4")
    run_pytest(folder, "--junit-xml=report.xml", *options, folder)
    return folder


def outcome(folder, name):
    """Of each cell of a notebook: None when it passed, else what pytest reports."""
    cases = ET.parse(folder / "report.xml").iter("testcase")
    mine = [
        case for case in cases if f"{name}.ipynb" in f"{case.get('classname')}{case.get('name')}"
    ]
    assert mine, f"{name}.ipynb was not run"
    faults = [
        [part for part in case if part.tag in ("failure", "error", "skipped")] for case in mine
    ]
    return [found[0].get("message") + (found[0].text or "") if found else None for found in faults]


def test_a_cell_passes_when_it_does_as_it_says(ran):
    *good, wrong, unrun = outcome(ran, "cells")
    assert good == [None] * 3
    assert "Cell outputs differ" in wrong
    assert "make notebooks" in unrun


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("damaged", "is no notebook"),
        ("empty", "has no code cell"),
    ],
)
def test_a_notebook_that_cannot_run_fails_with_its_reason(ran, name, reason):
    (said,) = outcome(ran, name)
    assert reason in said


@pytest.mark.parametrize(("name", "words"), [("exits", "exit status 3"), ("killed", "SIGKILL")])
def test_a_kernel_that_ends_fails_the_cell_that_did_it(ran, name, words):
    *before, at, after = outcome(ran, name)
    assert before in ([], [None])
    assert words in at
    assert after is not None


def test_a_cell_that_never_ends_fails_at_its_own_time(ran):
    assert "4 seconds exceeded" in outcome(ran, "endless")[1]


def test_a_notebook_runs_on_the_kernel_that_it_names_or_says_how_to_build_it(ran):
    (said,) = outcome(ran, "pytorch")
    assert said is None if not kernel.missing("torch") else "labkit env build torch" in said


def test_no_process_and_no_shared_memory_of_any_kernel_is_left(ran):
    pids = [int(word) for word in (ran / "pids.txt").read_text().split()]
    assert pids
    assert [pid for pid in pids if is_running(pid)] == []
    # What MPICH calls the memory of a process that mpiexec has not started.
    assert [pid for pid in pids if Path(f"/dev/shm/mpich_shm_{pid:x}_0").exists()] == []


def is_running(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
