"""The card of a task in JupyterLab: by keyboard, while the kernel is busy."""

from __future__ import annotations

import json
import time

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

WRONG_RING = """
import numpy as np

def my_ring(comm, buffer):  # in its second half it sends chunks that are not complete yet
    rank, ranks = comm.Get_rank(), comm.Get_size()
    chunks, left, right = np.array_split(buffer, ranks), (rank - 1) % ranks, (rank + 1) % ranks
    for step in range(ranks - 1):
        new = np.empty_like(chunks[(rank - step - 1) % ranks])
        comm.Sendrecv(chunks[(rank - step) % ranks], dest=right, recvbuf=new, source=left)
        chunks[(rank - step - 1) % ranks] += new
    for step in range(ranks - 1):
        into = chunks[(rank - step - 1) % ranks]
        comm.Sendrecv(chunks[(rank - step) % ranks], dest=right, recvbuf=into, source=left)

check("22.ring", my_ring)
"""
CELLS = [
    new_code_cell("from labkit.exercises import check\n\ncheck('10.adam_memory')"),
    new_code_cell("check('10.adam_memory', 12)"),
    new_code_cell(WRONG_RING),
]
BUSY = new_code_cell("import time\nwhile True:\n    time.sleep(0.1)")


@pytest.fixture(scope="module")
def opened(one_lab):
    nbformat.write(new_notebook(cells=[*CELLS, BUSY]), one_lab.folder / "cards.ipynb")
    one_lab.open("cards.ipynb")
    one_lab.page.evaluate("() => labkitPage.runAll()")
    one_lab.page.locator(".labkit-player[data-state=ready]").wait_for()
    yield one_lab
    one_lab.close_notebook()


def test_hints_open_by_keyboard_while_the_kernel_is_busy_and_are_counted_once_it_is_free(opened):
    page = opened.page
    solution = page.locator("details", has_text="Solution").last
    hint = page.locator('details[data-task="10.adam_memory"][data-hint="1"]').last
    assert page.locator("text=The solution opens after an attempt.").count() == 1
    hint.locator("summary").first.focus()
    page.keyboard.press("Enter")
    hint.locator("p").first.wait_for(state="visible")
    assert not hint.locator("details").locator("p").first.is_visible()  # the second waits
    solution.locator("summary").focus()
    page.keyboard.press("Enter")
    solution.locator("pre").wait_for(state="visible")
    assert not page.evaluate("() => labkitPage.kernelIsIdle()")
    # The kernel hears of it once it is free.
    page.evaluate("() => jupyterapp.commands.execute('notebook:interrupt-kernel')")
    page.wait_for_function("() => labkitPage.kernelIsIdle()")
    file, wanted = opened.folder / "labkit-progress.json", {"tries": 1, "solved": False, "hints": 1}
    end = time.monotonic() + 30
    while json.loads(file.read_text())["value"]["tasks"]["10.adam_memory"] != wanted:
        assert time.monotonic() < end, file.read_text()
        page.wait_for_timeout(50)
    assert opened.faults == []


def test_a_wrong_program_opens_at_the_first_wrong_step(opened):
    player = opened.page.locator(".labkit-player")
    assert player.get_attribute("data-step") == "4"
    assert "Step 4 of 6" in player.locator(".says").text_content()
    assert player.locator(".legend").text_content().endswith("wrong from here on")
