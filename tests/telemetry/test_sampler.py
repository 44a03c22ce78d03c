"""The sampler: its loop with sources that fail and hang, and its process as the kernel uses it."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from labkit.telemetry import sampler
from labkit.telemetry.metrics import Device, Row
from labkit.telemetry.sampler import Loop, Output, Sampled

COMMAND = [sys.executable, "-P", "-m", "labkit.telemetry.sampler"]


class Source:
    """One device, whose only number counts the samples; `faults` are raised, one a sample."""

    metrics = ("utilisation",)

    def __init__(self, name="made"):
        self.name, self.count, self.faults, self.rows = name, 0, [], []
        self.opened = self.closed = 0
        self.go_on = threading.Event()  # a sample waits for it
        self.go_on.set()

    def open(self):
        self.opened += 1
        return (Device(f"{self.name}0", self.name, "gpu"),), ()

    def sample(self, edge=False):
        self.go_on.wait()
        if self.faults:
            raise self.faults.pop(0)
        self.count += 1
        self.rows.append(Row(time.monotonic(), ((float(self.count),),)))

    def take(self):
        rows, self.rows = self.rows, []
        return rows, ()

    def close(self):
        self.closed += 1


class Pipe:
    """An output, and what has come out of it."""

    def __init__(self):
        self.read, write = os.pipe()
        os.set_blocking(self.read, False)
        self.output = Output(write, time.monotonic())
        self._bytes = b""

    @property
    def lines(self):
        try:
            while new := os.read(self.read, 1 << 16):
                self._bytes += new
        except BlockingIOError:
            pass
        return [json.loads(line) for line in self._bytes.split(b"\n")[:-1]]

    def rows(self, source):
        return [line for line in self.lines if isinstance(line, list) and line[0] == source]

    def states(self):
        return [
            (line["device"], line["state"])
            for line in self.lines
            if isinstance(line, dict) and "state" in line
        ]


@pytest.fixture
def pipe():
    return Pipe()


def until(condition):
    end = time.monotonic() + 20
    while not (answer := condition()) and time.monotonic() < end:
        time.sleep(0.005)
    return answer


# --- the loop


def test_a_source_that_fails_is_told_once_and_opened_again(pipe, monkeypatch):
    monkeypatch.setattr(sampler, "RETRY", 0.0)
    source = Source()
    sampled = Sampled(0, source, pipe.output)
    sampled.sample(edge=False)
    source.faults = [OSError("no driver")] * 3
    for _ in range(6):
        sampled.sample(edge=False)
    pipe.output.write(sampled.take())
    assert pipe.states() == [("made", "silent"), ("made", "fine")]
    assert "no driver" in next(line["says"] for line in pipe.lines if "state" in line)
    assert (source.opened, source.closed) == (4, 3)
    assert [row[2] for row in pipe.rows(0)] == [[float(number)] for number in (1, 2, 3, 4)]
    assert sum("source" in line for line in pipe.lines) == 4  # devices may have changed


def test_a_source_that_hangs_stops_no_other(pipe):
    hanging, well = Source("gpus"), Source("host")
    sources = [Sampled(n, one, pipe.output) for n, one in enumerate((hanging, well))]
    loop = Loop(sources, 0.01, pipe.output, batch=1)
    loop.start()
    assert until(lambda: len(pipe.rows(0)) > 2)
    hanging.go_on.clear()
    # The check asks what hangs after two seconds; it is told that they have passed.
    others = until(lambda: loop.others(time.monotonic() + 2))
    others.start()
    seen = len(pipe.rows(1))
    assert until(lambda: len(pipe.rows(1)) > seen + 5)
    hanging.go_on.set()
    assert until(lambda: pipe.states() == [("gpus", "silent"), ("gpus", "fine")])
    seen = len(pipe.rows(0))
    assert until(lambda: len(pipe.rows(0)) > seen + 5)
    for one in (loop, others):
        one.end()
        one.join(20)
    assert (hanging.closed, well.closed) == (1, 1)
    times = [row[1] for row in pipe.rows(1)]
    assert times == sorted(set(times))


def test_a_kernel_that_is_gone_ends_the_output(pipe):
    os.close(pipe.read)
    pipe.output.write(["{}"])
    assert pipe.output.broken


# --- the process


@pytest.fixture
def started():
    """Starts the sampler's process as the kernel does, and ends it whatever the test does."""
    begun = []

    def start(*arguments, **more):
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen([*COMMAND, *arguments], **{**streams, **more})
        begun.append(process)
        return process

    yield start
    for process in begun:
        process.kill()
        process.communicate(timeout=20)


def read_until(process, key):
    """The lines up to the first that is a dict with this key."""
    lines = [json.loads(process.stdout.readline())]
    while not (isinstance(lines[-1], dict) and key in lines[-1]):
        lines.append(json.loads(process.stdout.readline()))
    return lines


def ask(process, request):
    os.write(process.stdin.fileno(), request)


def test_flush_gives_a_sample_of_now_and_says_when_it_is_complete(started):
    process = started("--every=60", "--where=here")
    began = time.monotonic()
    header, gpus, host = (json.loads(process.stdout.readline()) for _ in range(3))
    assert (header["labkit"], header["where"]) == ("recording", "here")
    assert (gpus["source"], host["source"]) == ("gpus", "host")
    ask(process, b"nonsense\nsample\nflush 7\n")
    lines = read_until(process, "flushed")
    assert lines[-1] == {"flushed": 7}
    named = [line for line in lines if isinstance(line, dict) and line.get("source") == "host"]
    assert named[0]["devices"][0]["key"] == "cpu"
    assert any(isinstance(line, list) and line[1] + header["clock"] > began for line in lines)
    ask(process, b"process 999999999\nflush 8\n")
    states = [line for line in read_until(process, "flushed") if "state" in line]
    assert [one["metric"] for one in states if one["state"] == "lost"] == ["process_memory"]
    lines, complaints = process.communicate(timeout=20)
    assert "end" in json.loads(lines.splitlines()[-1])
    assert (process.returncode, complaints) == (0, b"")


def test_a_continued_recording_has_no_second_header_and_its_times_go_on(started):
    process = started("--continued", f"--clock={time.monotonic() - 100.0!r}")
    ask(process, b"flush 1\n")
    lines = read_until(process, "flushed")
    assert "source" in lines[0]
    assert all(line[1] > 100 for line in lines if isinstance(line, list))


def test_samples_come_in_batches_of_the_size_that_was_asked_for(started):
    process = started("--every=0.06")
    ask(process, b"batch 5\nflush 1\n")
    read_until(process, "flushed")
    os.set_blocking(process.stdout.fileno(), False)

    def batch():
        """How many rows the next write has."""
        text = until(process.stdout.read)
        return sum(line.startswith(b"[") for line in text.splitlines())

    batch()  # the first comes at once
    sizes = [batch() for _ in range(4)]
    assert max(sizes) <= 6
    assert sum(sizes) >= 10  # a busy machine may miss some
    ask(process, b"batch 1\n")
    assert until(lambda: batch() == batch() == 1)


def test_ctrl_c_is_for_the_cell_and_sigterm_or_a_word_ends_it(started):
    # A shell that runs the tests in the background has it ignored from the start.
    default = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)  # noqa: E731
    for end in (
        lambda process: process.send_signal(signal.SIGTERM),
        lambda process: ask(process, b"end\n"),
    ):
        process = started(preexec_fn=default)
        read_until(process, "source")
        process.send_signal(signal.SIGINT)
        ask(process, b"flush 1\n")
        read_until(process, "flushed")
        end(process)
        process.wait(20)  # its standard input is still open
        assert "end" in json.loads(process.stdout.readlines()[-1])
        assert process.returncode == 0


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
