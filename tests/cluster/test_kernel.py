"""Ranks from the cells of a real Jupyter kernel: warm, interrupted, restarted."""

import os
import re
from pathlib import Path

import pytest
from jupyter_client.manager import KernelManager

from tests.cluster.leftovers import gone, marked, new_mark

ROOT = Path(__file__).parent.parent.parent
BOTH_HAVE_BEGUN = r"(?s)begun as \d+.*begun as \d+\n"
WAITS = """
def waits(rank):
    print("begun as", os.getpid())
    threading.Event().wait()
with labkit.cluster(ranks=2) as c:
    c.run(waits, timeout=1000)
"""


class Kernel:
    """A kernel with a mark, and what its cells write."""

    def __init__(self):
        self.mark = new_mark()
        self.manager = KernelManager(kernel_name="python3")
        environment = {**os.environ, "LABKIT_TEST_MARK": self.mark}
        self.manager.start_kernel(cwd=str(ROOT), env=environment)
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=300)

    def run(self, code, until=None):
        """What the cell writes (to its end, or until these words) and the name of its error."""
        self.request = self.client.execute(code)
        return self.rest(until)

    def rest(self, until=None):
        """What the cell writes from now on, and the name of its error."""
        text, fault = "", None
        while until is None or not re.search(until, text):
            message = self.client.get_iopub_msg(timeout=300)
            if message["parent_header"].get("msg_id") != self.request:
                continue
            content = message["content"]
            text += content.get("text", "") + content.get("data", {}).get("text/plain", "")
            fault = content.get("ename", fault)
            if content.get("execution_state") == "idle":
                break
        return text, fault

    def close(self):
        self.client.stop_channels()
        if self.manager.has_kernel:
            self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()


@pytest.fixture(scope="module")
def kernel():
    started = Kernel()
    started.run("import os, threading, labkit")
    yield started
    started.close()
    assert gone(started.mark)


def test_functions_and_classes_of_cells_run_and_their_lines_and_faults_are_shown(kernel):
    kernel.run("class Pair:\n    two = 2\ndef twice(x):\n    return x * Pair.two")
    cell = "def program(rank, one):\n    print('hello')\n    return twice(one / rank)\n"
    block = "with labkit.cluster(ranks=2) as c:\n    "
    text, fault = kernel.run(f"{cell}{block}print(c.run(lambda rank: program(rank + 1, 1)))")
    assert fault is None
    assert sorted(text.splitlines()[:2]) == ["rank 0: hello", "rank 1: hello"]
    assert "[2.0, 1.0]" in text
    assert kernel.run(f"{block}c.run(program, 1)")[1] == "LabError"
    caught = "except labkit.LabError as fault:\n    print(fault, fault.errors[0].traceback)"
    text, _ = kernel.run(f"try:\n    {block}    c.run(program, 1)\n{caught}")
    assert "in line 3 of program (`return twice(one / rank)`)" in text
    assert "    return twice(one / rank)\n" in text


def test_the_next_cell_finds_the_fork_server_warm_and_shutdown_ends_it(kernel):
    one = "with labkit.cluster(ranks=1) as c:\n    print(*c.run(lambda rank: os.getppid()))"
    first, second = kernel.run(one)[0], kernel.run(one)[0]
    assert first == second
    kernel.run("labkit.cluster.shutdown()")
    assert int(first) not in marked(kernel.mark)


def test_an_interrupt_ends_the_ranks_and_the_next_cell_works(kernel):
    begun = kernel.run(WAITS, until=BOTH_HAVE_BEGUN)[0]
    kernel.manager.interrupt_kernel()
    assert kernel.rest()[1] == "KeyboardInterrupt"
    assert not any(pid in begun for pid in map(str, marked(kernel.mark)))
    text, fault = kernel.run("with labkit.cluster(ranks=2) as c:\n    print(c.run(abs))")
    assert (text, fault) == ("[0, 1]\n", None)


def test_a_restart_in_the_middle_of_a_run_leaves_nothing(kernel):
    kernel.run(WAITS, until=BOTH_HAVE_BEGUN)
    before = marked(kernel.mark)
    kernel.manager.restart_kernel(now=True)
    assert gone(kernel.mark, *(marked(kernel.mark) - before))
