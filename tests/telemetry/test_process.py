import json
import os
import signal
import subprocess
import sys
import time

import pytest

from labkit.telemetry.process import Outlet
from tests.telemetry.simulated import until

COMMAND = [sys.executable, "-P", "-m", "labkit.telemetry.process", "--sources=host"]


@pytest.fixture
def sampler():
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


def lines_of(process, count):
    return [json.loads(process.stdout.readline()) for _ in range(count)]


def rest_of(process):
    said, complaints = process.communicate(timeout=20)
    return [json.loads(line) for line in said.splitlines()], complaints.decode()


def test_it_ends_when_its_standard_input_does_and_says_so(sampler):
    process = sampler(f"--pid={os.getpid()}")
    header, source = lines_of(process, 2)
    assert header["labkit"] == "recording"
    assert source["source"] == "host"
    assert source["devices"][0]["key"] == "cpu"
    lines, complaints = rest_of(process)
    assert "end" in lines[-1]
    assert (process.returncode, complaints) == (0, "")


def test_ctrl_c_is_not_meant_for_it(sampler):
    # A shell that runs the tests in the background has it ignored from the start.
    process = sampler(preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
    lines_of(process, 2)
    process.send_signal(signal.SIGINT)
    process.stdin.write(b"mark\n")
    process.stdin.flush()
    assert lines_of(process, 12)
    assert process.poll() is None
    assert "end" in rest_of(process)[0][-1]


def test_it_can_be_asked_to_end_by_signal_or_by_word(sampler):
    for ask in (
        lambda p: p.send_signal(signal.SIGTERM),
        lambda p: os.write(p.stdin.fileno(), b"end\n"),
    ):
        process = sampler()
        lines_of(process, 2)
        ask(process)
        process.wait(20)  # its standard input is still open
        assert json.loads(process.stdout.readlines()[-1]).keys() == {"end"}
        assert process.returncode == 0


def test_it_ends_when_its_parent_dies_although_its_input_stays_open(sampler):
    """As when the kernel is killed while a fork of it holds the other end of the pipe."""
    read, write = os.pipe()
    program = f"import subprocess; print(subprocess.Popen({COMMAND!r}, stdin={read}).pid, flush=1)"
    parent = subprocess.Popen(
        [sys.executable, "-c", f"{program}; import os, time; time.sleep(1); os._exit(0)"],
        pass_fds=[read],
        stdout=subprocess.PIPE,
    )
    os.close(read)
    try:
        # Its own standard output is the sampler's too: it ends when both have ended.
        said, _ = parent.communicate(timeout=20)
        assert len(said.splitlines()) > 3
    finally:
        os.close(write)


def test_who_asks_is_given_a_row_at_once(sampler):
    process = sampler("--every=60")
    while not isinstance(json.loads(process.stdout.readline()), list):
        pass
    os.write(process.stdin.fileno(), b"tell\n")
    assert isinstance(json.loads(process.stdout.readline()), list)


def rows_within(process, seconds):
    """Times at which lines came, with the rows that came then."""
    os.set_blocking(process.stdout.fileno(), False)
    end, came = time.monotonic() + seconds, []
    while time.monotonic() < end:
        text = process.stdout.read()
        if text:
            came.append([line for line in text.decode().splitlines() if line.startswith("[")])
        time.sleep(0.01)
    return [rows for rows in came if rows]


def test_rows_come_in_batches_until_somebody_watches(sampler):
    process = sampler("--every=0.1")
    lines_of(process, 3)
    unwatched = rows_within(process, 5)
    rows = sum(map(len, unwatched))
    assert rows >= 20
    assert len(unwatched) <= rows / 3  # a busy machine may spoil a batch, not all of them
    os.write(process.stdin.fileno(), b"live\n")
    watched = rows_within(process, 5)
    assert len(watched) >= 1.4 * len(unwatched)
    os.write(process.stdin.fileno(), b"each\nlive\n")
    assert len(rows_within(process, 2)) >= 8


def test_a_file_has_every_row_at_once(sampler, tmp_path):
    file = tmp_path / "live.jsonl"
    sampler("--every=0.05", f"--to={file}")
    sizes = set()

    def grown():
        sizes.add(file.stat().st_size if file.exists() else 0)
        return len(sizes) > 12

    began = time.monotonic()
    assert until(grown)
    assert time.monotonic() - began < 5  # by the second, it would take longer


def test_a_continued_recording_has_no_second_header_and_its_times_go_on(sampler):
    process = sampler("--continued", f"--clock={time.monotonic() - 100.0!r}")
    assert "source" in lines_of(process, 1)[0]
    rows = [line for line in rest_of(process)[0] if isinstance(line, list)]
    assert rows == [] or rows[0][1] > 100


def test_a_file_gets_whole_lines_at_its_end(sampler, tmp_path):
    file = tmp_path / "recording.jsonl"
    file.write_text('{"first": 1}\n')
    process = sampler(f"--to={file}", "--every=0.02")
    assert until(lambda: file.read_text().count("\n") > 10)
    assert rest_of(process) == ([], "")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert lines[0] == {"first": 1}
    assert "end" in lines[-1]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full to write to")  # noqa: PTH110
def test_a_full_disk_ends_it_with_a_sentence(sampler):
    process = sampler("--to=/dev/full")
    process.wait(20)
    assert process.returncode == 3
    assert "/dev/full cannot be written any more" in process.stderr.read().decode()


def test_what_it_cannot_do_is_one_sentence_on_its_error_output(sampler):
    process = sampler("--sources=fan")
    process.wait(20)
    (sentence,) = process.stderr.read().decode().splitlines()
    assert "'fan'" in sentence


def pipe_of(room):
    read, write = os.pipe()
    os.set_blocking(write, False)
    os.set_blocking(read, False)
    return read, write, Outlet(write, whole=False, room=room)


def all_of(read, outlet):
    """Everything that comes out, while the outlet is flushed as at the next looks."""
    said = b""
    for _ in range(10_000):
        outlet.flush()
        try:
            said += os.read(read, 1000)
        except BlockingIOError:
            return [json.loads(line) for line in said.splitlines()]
    raise AssertionError("it never ends")


def test_a_kernel_that_takes_nothing_for_long_loses_nothing():
    read, write, outlet = pipe_of(room=10_000_000)
    for number in range(20_000):  # far more than the pipe holds
        outlet.write([json.dumps([number, "x" * 50])])
    assert outlet.waiting > 0
    assert [number for number, _ in all_of(read, outlet)] == list(range(20_000))
    assert (outlet.waiting, outlet.lost, outlet.fault) == (0, 0, None)
    os.close(read)
    os.close(write)


def test_a_backlog_is_bounded_and_loses_whole_looks_the_oldest_first():
    read, write, outlet = pipe_of(room=100_000)
    for number in range(1000):
        # More than the 4096 bytes that go into a pipe all or not at all.
        outlet.write([json.dumps([number, "x" * 9000])])
        assert outlet.waiting <= 100_000
    numbers = [number for number, _ in all_of(read, outlet)]  # json.loads: none was torn
    assert numbers[-10:] == list(range(990, 1000))
    assert numbers == sorted(numbers)
    assert outlet.lost == 1000 - len(numbers)
    os.close(read)
    os.close(write)


def test_a_kernel_that_is_gone_is_a_fault_of_the_outlet():
    read, write, outlet = pipe_of(room=1000)
    os.close(read)
    outlet.write(["[1]"])
    assert isinstance(outlet.fault, BrokenPipeError)
    os.close(write)
