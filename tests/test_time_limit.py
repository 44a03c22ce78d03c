"""A time limit raises in the middle of a program, and leaves Python as it was."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import suppress

import pytest

from labkit.time_limit import TimeLimit, time_limit


def test_a_program_that_never_ends_is_stopped_even_if_it_swallows_errors():
    def swallow():
        while True:
            with suppress(Exception):
                time.perf_counter()

    with pytest.raises(TimeLimit), time_limit(0.05):
        swallow()


@pytest.mark.parametrize("block", ["pass", "while True: pass"])
def test_a_tracer_works_afterwards(block):
    program = f"""
import sys
from labkit.time_limit import TimeLimit, time_limit
try:
    with time_limit(0.05):
        {block}
except TimeLimit:
    pass
sys.settrace(lambda frame, event, argument: None)
print(sum(map(lambda n: n, range(9))))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30
    )
    assert done.stdout == "36\n", done.stderr
