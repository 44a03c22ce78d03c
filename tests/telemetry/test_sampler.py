"""The sampler: its loop with a source that hangs, and its process as the kernel uses it."""

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

from labkit.telemetry.format import Header, line
from labkit.telemetry.metrics import Device, Row
from labkit.telemetry.sampler import Sampler
from tests.telemetry.recorders import until

COMMAND = [sys.executable, "-P", "-m", "labkit.telemetry.sampler"]
COMMAND += ["--pid", str(os.getpid()), "--header", line(Header("here", "now", 60.0, 0.0))]


class Made:
    """One device, whose only number is 1."""

    metrics = ("utilisation",)

    def __init__(self, name):
        self.name, self.rows = name, []
        self.go_on = threading.Event()  # a sample waits for it
        self.go_on.set()

    def open(self):
        return (Device(f"{self.name}0", self.name, "gpu"),), ()

    def sample(self, edge=False):
        self.go_on.wait()
        self.rows.append(Row(time.monotonic(), ((1.0,),)))

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


def test_signals_are_for_the_program_that_is_watched_and_a_word_ends_it():
    # A shell that runs the tests in the background has SIGINT ignored from the start.
    default = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)  # noqa: E731
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(COMMAND, preexec_fn=default, **pipes)  # noqa: PLW1509
    try:
        process.stdout.readline()
        for signum in (signal.SIGINT, signal.SIGTERM):
            process.send_signal(signum)
        os.write(process.stdin.fileno(), b"nonsense\nflush 7\n")
        lines = [json.loads(process.stdout.readline())]
        while lines[-1] != {"flushed": 7}:
            lines.append(json.loads(process.stdout.readline()))
        assert [one[0] for one in lines if isinstance(one, list)]
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
