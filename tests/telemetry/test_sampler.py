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
from labkit.telemetry.metrics import Device, Row, SourceLost
from labkit.telemetry.sampler import Loop, Output, Sampled

COMMAND = [sys.executable, "-P", "-m", "labkit.telemetry.sampler", "--sources=host"]


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
        os.set_blocking(write, False)
        self.output = Output(write)
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


def test_the_header_and_the_sources_come_first(pipe):
    source = Source()
    sampled = Sampled(0, source, time.monotonic(), pipe.output)
    sampled.sample(edge=False)
    pipe.output.write(sampled.take())
    assert pipe.lines == []
    pipe.output.begin([sampled], ['{"header":1}'])
    header, named, row = pipe.lines
    assert header == {"header": 1}
    assert [device["key"] for device in named["devices"]] == ["made0"]
    assert row[0] == 0
    assert row[2] == [1.0]


def test_rows_go_forward_in_time(pipe):
    source = Source()
    sampled = Sampled(0, source, 0.0, pipe.output)
    sampled.sample(edge=False)
    source.rows = [Row(moment, ((1.0,),)) for moment in (1.0, 2.0, 2.0, 1.5, 3.0)]
    assert [json.loads(line)[1] for line in sampled.take()] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("fault", "why", "words"),
    [
        (OSError("no driver"), "silent", "OSError: no driver"),
        (SourceLost("lost", "The driver was reloaded."), "lost", "The driver was reloaded."),
    ],
)
def test_a_source_that_fails_is_told_once_and_opened_again(pipe, monkeypatch, fault, why, words):
    monkeypatch.setattr(sampler, "PAUSES", (0.0,))
    source = Source()
    sampled = Sampled(0, source, time.monotonic(), pipe.output)
    sampled.sample(edge=False)
    pipe.output.begin([sampled], [])
    source.faults = [fault, fault, fault]
    for _ in range(6):
        sampled.sample(edge=False)
    pipe.output.write(sampled.take())
    assert pipe.states() == [("made", why), ("made", "fine")]
    assert words in next(line["says"] for line in pipe.lines if "state" in line)
    assert (source.opened, source.closed) == (4, 3)
    # What was sampled before it failed is not lost, and devices are named again after it.
    assert [row[2] for row in pipe.rows(0)] == [[float(number)] for number in (1, 2, 3, 4)]
    assert sum("source" in line for line in pipe.lines) >= 2


def test_a_source_that_failed_is_left_alone_for_a_while(pipe):
    source = Source()
    source.open = lambda: 1 / 0
    sampled = Sampled(0, source, time.monotonic(), pipe.output)
    for _ in range(5):
        sampled.sample(edge=False)
    assert source.closed == 1


def test_a_source_that_hangs_stops_no_other(pipe):
    hanging, well = Source("gpus"), Source("host")
    began = time.monotonic()
    sources = [Sampled(n, one, began, pipe.output) for n, one in enumerate((hanging, well))]
    loop = Loop(sources, 0.01, began, pipe.output, batch=1)
    pipe.output.begin(sources, [])
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


def test_a_pipe_that_is_full_loses_nothing(pipe):
    pipe.output.begin([], [])
    for number in range(5_000):  # far more than the pipe holds
        pipe.output.write([json.dumps([number, "x" * 50])])
    seen = until(lambda: (pipe.output.write([]), pipe.lines)[1][5_000 - 1 :] and pipe.lines)
    assert [number for number, _ in seen] == list(range(5_000))


def test_a_kernel_that_is_gone_is_a_fault_of_the_output(pipe):
    os.close(pipe.read)
    pipe.output.begin([], ["{}"])
    assert isinstance(pipe.output.fault, BrokenPipeError)


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
    process = started(f"--pid={os.getpid()}", "--every=60", "--where=here")
    began = time.monotonic()
    header, source, *_ = read_until(process, "source")
    assert (header["labkit"], header["where"]) == ("recording", "here")
    assert source["devices"][0]["key"] == "cpu"
    ask(process, b"nonsense\nsample\nflush 7\n")
    lines = read_until(process, "flushed")
    assert lines[-1] == {"flushed": 7}
    assert any(isinstance(line, list) and line[1] + header["clock"] > began for line in lines)
    lines, complaints = process.communicate(timeout=20)
    assert "end" in json.loads(lines.splitlines()[-1])
    assert (process.returncode, complaints) == (0, b"")


def test_samples_come_in_batches_of_the_size_that_was_asked_for(started):
    process = started("--every=0.06", "--batch=5")
    read_until(process, "source")
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


def test_another_process_can_be_followed(started):
    process = started()
    read_until(process, "source")
    ask(process, b"process 999999999\nflush 1\n")
    states = [line for line in read_until(process, "flushed") if "state" in line]
    assert [one["metric"] for one in states if one["state"] == "lost"] == ["process_memory"]


def test_the_times_of_a_continued_recording_go_on(started):
    process = started("--continued", f"--clock={time.monotonic() - 100.0!r}")
    ask(process, b"flush 1\n")
    lines = read_until(process, "flushed")
    assert "source" in lines[0]
    assert all(line[1] > 100 for line in lines if isinstance(line, list))


def test_what_it_cannot_do_is_one_sentence(started):
    process = started("--sources=fan")
    process.wait(20)
    (sentence,) = process.stderr.read().decode().splitlines()
    assert "'fan'" in sentence
