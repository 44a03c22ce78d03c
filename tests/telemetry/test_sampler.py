"""The sampler: its loop with sources that fail and hang, and its process as the kernel uses it."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from itertools import pairwise

import pytest

from labkit.telemetry.metrics import Device, Row
from labkit.telemetry.sampler import Sampler
from tests.telemetry.recorders import until

COMMAND = [sys.executable, "-P", "-m", "labkit.telemetry.sampler"]


class Made:
    """One device, whose only number counts the samples; `faults` are raised, one a sample."""

    metrics = ("utilisation",)

    def __init__(self, name):
        self.name, self.count, self.faults, self.rows = name, 0, [], []
        self.go_on = threading.Event()  # a sample waits for it
        self.go_on.set()

    def open(self):
        return (Device(f"{self.name}0", self.name, "gpu"),), ()

    def sample(self, edge=False):
        self.go_on.wait()
        self.count += 1
        if self.faults:
            raise self.faults.pop(0)
        self.rows.append(Row(time.monotonic(), ((float(self.count),),)))

    def take(self):
        rows, self.rows = self.rows, []
        return rows, ()


@pytest.fixture
def sampling():
    """Runs a sampler on two made sources; gives these and what it has written so far."""
    sources = [Made("gpus"), Made("host")]
    (there, requests), (output, here) = os.pipe(), os.pipe()
    os.set_blocking(output, False)
    sampler = Sampler(sources, 0.01, time.monotonic(), (there, here))
    os.write(requests, b"batch 1\n")
    threads = [
        threading.Thread(target=sampler.run),
        threading.Thread(target=sampler.watch, args=(os.getppid(),), daemon=True),
    ]
    for thread in threads:
        thread.start()
    text = bytearray()

    def lines():
        with suppress(BlockingIOError):
            while new := os.read(output, 1 << 16):
                text.extend(new)
        return [json.loads(line) for line in text.split(b"\n")[:-1]]

    yield sources, lines
    os.close(requests)
    threads[0].join(20)


def rows(lines, source):
    return [line for line in lines if isinstance(line, list) and line[0] == source]


def states(lines):
    told = [line for line in lines if isinstance(line, dict) and "state" in line]
    return [(line["device"], line["state"]) for line in told]


# --- the loop


def test_a_source_that_fails_is_told_once_and_is_read_again_when_it_can_be(sampling):
    (gpus, _), lines = sampling
    until(lambda: rows(lines(), 0))
    gpus.faults = [OSError("no driver")] * 3
    until(lambda: len(states(lines())) == 2)
    assert states(lines()) == [("gpus", "silent"), ("gpus", "fine")]
    assert "no driver" in next(line["says"] for line in lines() if "state" in line)
    counts = [row[2][0] for row in rows(lines(), 0)]
    assert sum(later - earlier - 1 for earlier, later in pairwise(counts)) == 3
    assert len(rows(lines(), 1)) >= len(counts)  # the other source missed nothing


def test_a_driver_that_hangs_is_told_once_and_sampling_goes_on_when_it_answers(sampling):
    (gpus, _), lines = sampling
    until(lambda: rows(lines(), 0))
    gpus.go_on.clear()
    until(lambda: states(lines()) == [("gpus", "silent")])
    gpus.go_on.set()
    until(lambda: states(lines()) == [("gpus", "silent"), ("gpus", "fine")])
    seen = [len(rows(lines(), source)) for source in (0, 1)]
    until(lambda: all(len(rows(lines(), source)) > seen[source] + 5 for source in (0, 1)))
    assert len(states(lines())) == 2
    assert all(first[1] < second[1] for first, second in pairwise(rows(lines(), 1)))


# --- the process


def test_signals_are_for_the_program_that_is_watched_and_a_word_ends_it():
    # A shell that runs the tests in the background has SIGINT ignored from the start.
    default = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)  # noqa: E731
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([*COMMAND, "--every=60"], preexec_fn=default, **pipes)  # noqa: PLW1509
    try:
        process.stdout.readline()
        for signum in (signal.SIGINT, signal.SIGTERM):
            process.send_signal(signum)
        os.write(process.stdin.fileno(), b"nonsense\nprocess 999999999\nflush 7\n")
        lines = [json.loads(process.stdout.readline())]
        while lines[-1] != {"flushed": 7}:
            lines.append(json.loads(process.stdout.readline()))
        assert ("cpu", "lost") in states(lines)  # the process whose memory is asked for
        os.write(process.stdin.fileno(), b"end\n")
        process.wait(20)  # its standard input is still open
        assert "end" in json.loads(process.stdout.readlines()[-1])
        assert (process.returncode, process.stderr.read()) == (0, b"")
    finally:
        process.kill()
        process.communicate()


def test_it_ends_when_its_parent_dies_although_its_input_stays_open():
    """As when the kernel is killed while a fork of it holds the other end of the pipe."""
    read, write = os.pipe()
    program = (
        f"import subprocess; p = subprocess.Popen({COMMAND!r}, stdin={read}, "
        "stdout=subprocess.PIPE); p.stdout.readline(); import os; os._exit(0)"
    )
    # The sampler has this standard error too: it ends when both have ended.
    parent = subprocess.Popen(
        [sys.executable, "-c", program], pass_fds=[read], stderr=subprocess.PIPE
    )
    os.close(read)
    try:
        parent.communicate(timeout=20)
    finally:
        os.close(write)
