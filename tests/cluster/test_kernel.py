"""Ranks from the cells of a real Jupyter kernel: warm, interrupted, restarted."""

import pytest

from tests.cluster.leftovers import MARK, gone, marked, new_mark
from tests.kernels import Kernel, fault_of, text_of

BOTH_HAVE_BEGUN = r"(?s)begun as \d+.*begun as \d+\n"
WAITS = """
def waits(rank):
    print("begun as", os.getpid())
    threading.Event().wait()
with labkit.cluster(ranks=2) as c:
    c.run(waits, timeout=1000)
"""


@pytest.fixture(scope="module")
def kernel():
    mark = new_mark()
    started = Kernel(**{MARK: mark})
    started.mark = mark
    started.run("import os, threading, labkit")
    yield started
    started.close()
    assert gone(mark)


def test_functions_and_classes_of_cells_run_and_their_lines_and_faults_are_shown(kernel):
    kernel.run("class Pair:\n    two = 2\ndef twice(x):\n    return x * Pair.two")
    cell = "def program(rank, one):\n    print('hello')\n    return twice(one / rank)\n"
    block = "with labkit.cluster(ranks=2) as c:\n    "
    run = kernel.run(f"{cell}{block}print(c.run(lambda rank: program(rank + 1, 1)))")
    assert fault_of(run) is None
    text = text_of(run)
    assert sorted(text.splitlines()[:2]) == ["rank 0: hello", "rank 1: hello"]
    assert "[2.0, 1.0]" in text
    assert fault_of(kernel.run(f"{block}c.run(program, 1)")) == "LabError"
    caught = "except labkit.LabError as fault:\n    print(fault, fault.errors[0].traceback)"
    text = text_of(kernel.run(f"try:\n    {block}    c.run(program, 1)\n{caught}"))
    assert "in line 3 of program (`return twice(one / rank)`)" in text
    assert "    return twice(one / rank)\n" in text


def test_the_next_cell_finds_the_fork_server_warm_and_shutdown_ends_it(kernel):
    one = "with labkit.cluster(ranks=1) as c:\n    print(*c.run(lambda rank: os.getppid()))"
    first, second = (text_of(kernel.run(one)) for _ in range(2))
    assert first == second
    kernel.run("labkit.cluster.shutdown()")
    assert int(first) not in marked(kernel.mark)


def test_an_interrupt_ends_the_ranks_and_the_next_cell_works(kernel):
    begun = text_of(kernel.run(WAITS, until=BOTH_HAVE_BEGUN))
    kernel.manager.interrupt_kernel()
    assert fault_of(kernel.rest()) == "KeyboardInterrupt"
    assert not any(pid in begun for pid in map(str, marked(kernel.mark)))
    block = "with labkit.cluster(ranks=2) as c:\n    print(c.run(abs))"
    assert text_of(kernel.run(block)) == "[0, 1]\n"


def test_a_restart_in_the_middle_of_a_run_leaves_nothing(kernel):
    kernel.run(WAITS, until=BOTH_HAVE_BEGUN)
    before = marked(kernel.mark)
    kernel.manager.restart_kernel(now=True)
    assert gone(kernel.mark, *(marked(kernel.mark) - before))
