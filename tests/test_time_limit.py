"""A time limit raises in the middle of a program, and leaves Python as it was."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from contextlib import suppress

import psutil
import pytest

from labkit import time_limit as module
from labkit.time_limit import TimeLimit, ended_within, time_limit


def test_a_program_that_never_ends_is_stopped_even_if_it_swallows_errors():
    def swallow():
        while True:
            with suppress(Exception):
                time.perf_counter()

    with pytest.raises(TimeLimit), time_limit(0.05):
        swallow()


def test_nothing_is_raised_after_a_block_that_ends_at_its_limit():
    """Of 2,000 blocks the exception once came inside the context manager, and again for ever."""
    process = psutil.Process()
    before = process.num_threads()
    for _ in range(2000):
        with suppress(TimeLimit), time_limit(1e-4):
            [str(number) for number in range(600)]
    while process.num_threads() > before:
        pass


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
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300
    )
    assert done.stdout == "36\n", done.stderr


def test_time_without_a_core_does_not_count(monkeypatch):
    done, lost = threading.Event(), iter([0.0, 1000.0])

    def without_core(thread):
        seconds = next(lost)
        if seconds:
            done.set()
        return seconds

    monkeypatch.setattr(module, "without_core", without_core)
    assert ended_within(0.01, done.wait, threading.get_native_id())
