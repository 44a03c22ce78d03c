"""The driver leaves no process and no folder behind, whatever ends the tests.

In a file of its own: a process can have one playwright at a time, and test_lab.py keeps one open.
"""

from __future__ import annotations

import time

import nbformat
import psutil
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from tests.browser.lab import Lab

ENDLESS = [new_code_cell("while True: pass")]


def running(pids):
    left = []
    for pid in pids:
        try:
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                left.append(pid)
        except psutil.NoSuchProcess:
            pass
    return left


def test_nothing_is_left_when_the_tests_are_interrupted(tmp_path):
    nbformat.write(new_notebook(cells=ENDLESS), tmp_path / "endless.ipynb")
    with pytest.raises(KeyboardInterrupt), Lab(tmp_path) as lab:  # noqa: PT012
        lab.open("endless.ipynb")
        lab.run_all(1)
        raise KeyboardInterrupt
    assert lab.pids
    deadline = time.monotonic() + 20
    while running(lab.pids) and time.monotonic() < deadline:
        psutil.wait_procs([psutil.Process(pid) for pid in running(lab.pids)], timeout=1)
    assert running(lab.pids) == []
    assert not lab._private.exists()
