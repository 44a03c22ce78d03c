"""The sampler's process, as the kernel starts, asks and ends it: whatever happens, none is left."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest

from labkit.telemetry import client as client_module
from labkit.telemetry.client import SamplerClient
from tests.telemetry.recorders import until


class Lines:
    """What a client has handed on."""

    def __init__(self):
        self.all = []
        self.texts = []

    def take(self, text):
        self.texts.append(text)
        self.all += map(json.loads, text.split("\n"))

    def times(self, source=1):
        """Of the rows of the host."""
        return [line[1] for line in list(self.all) if isinstance(line, list) and line[0] == source]

    def notes(self, key):
        return [line for line in list(self.all) if isinstance(line, dict) and key in line]


@pytest.fixture
def started():
    """Starts clients, and stops them whatever the test does."""
    begun = []

    def start(every=0.1, take=None):
        lines = Lines()
        client = SamplerClient(every, take or lines.take, "this machine")
        begun.append(client)
        client.start()
        return client, lines

    yield start
    for client in begun:
        client.stop()


def is_gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_header_sources_rows_and_the_end_come_in_this_order(started):
    client, lines = started()
    assert client.flush(20)
    pid = client.pid
    client.stop()
    assert lines.all[0]["labkit"] == "recording"
    assert (lines.all[0]["clock"], lines.all[0]["where"]) == (client.clock, "this machine")
    assert [line["source"] for line in lines.notes("source")] == ["gpus", "host"]
    assert lines.times()
    assert "end" in lines.all[-1]
    assert not client.alive
    assert not psutil.pid_exists(pid)


def test_a_sample_at_the_edge_of_a_span_comes_with_the_next_batch(started):
    client, lines = started(every=60)
    assert client.flush(20)
    moments = []
    for _ in range(3):
        threading.Event().wait(0.05)  # sooner, the processor's counters have not moved
        moments.append(time.monotonic() - client.clock)
        client.sample()
    threading.Event().wait(0.05)
    assert client.flush(20)
    for moment in moments:
        assert any(moment - 1e-3 <= at < moment + 0.05 for at in lines.times())


def test_a_call_that_holds_pythons_lock_loses_no_sample(started):
    client, lines = started()
    assert client.flush(20)
    begun = time.monotonic() - client.clock
    ctypes.PyDLL(None).usleep(1_500_000)  # PyDLL, unlike CDLL, keeps the lock
    assert client.flush(20)
    assert len([at for at in lines.times() if begun < at < begun + 1.5]) >= 12


def test_a_sampler_that_dies_is_started_again_and_the_recording_goes_on(started, monkeypatch):
    monkeypatch.setattr(client_module, "RESTARTS", 1)
    client, lines = started()
    client.batch(1)
    assert client.flush(20)
    os.kill(client.pid, signal.SIGKILL)
    until(lambda: "started again" in str(lines.notes("state")))
    seen = len(lines.times())
    until(lambda: len(lines.times()) > seen + 2)
    assert "exit status -9" in str(lines.notes("state"))
    assert len(lines.notes("labkit")) == 1
    assert lines.times() == sorted(set(lines.times()))
    assert lines.texts[-1].count("\n") < 2  # the size of batches holds for the new one, too
    os.kill(client.pid, signal.SIGKILL)
    until(lambda: not client.alive)
    silent = [line["device"] for line in lines.notes("state") if line["state"] == "silent"]
    assert silent[-2:] == ["gpus", "host"]
    assert not client.flush(20)  # at once: nothing will answer


@pytest.mark.filterwarnings("ignore:.*no room:RuntimeWarning")
def test_a_receiver_that_fails_once_gets_what_follows(started):
    taken = []

    def take(text):
        taken.append(text)
        if len(taken) == 1:
            raise RuntimeError("no room")

    client, _ = started(take=take)
    assert client.flush(20)
    assert len(taken) > 1


def test_a_sampler_that_hangs_does_not_hold_up_the_stop(started):
    client, _ = started()
    os.kill(client.pid, signal.SIGSTOP)
    client.stop(timeout=0.2)
    assert is_gone(client.pid)
    assert not client.alive


KERNEL = """
import os, sys, time
from labkit.telemetry.client import SamplerClient
client = SamplerClient(0.1, lambda text: None, "here")
client.start()
client.flush(20)
print(client.pid, flush=True)
"""


@pytest.mark.parametrize(
    ("ending", "signum"),
    [("time.sleep(60)", signal.SIGKILL), ("pass", None)],
    ids=["killed", "ended"],
)
def test_however_a_kernel_ends_no_sampler_is_left(ending, signum):
    kernel = subprocess.Popen([sys.executable, "-c", KERNEL + ending], stdout=subprocess.PIPE)
    try:
        sampler = int(kernel.stdout.readline())
        if signum:
            kernel.send_signal(signum)
        until(lambda: is_gone(sampler))
    finally:
        kernel.kill()
        kernel.communicate(timeout=20)


def test_many_starts_and_stops_leave_no_thread_and_no_open_file(started):
    started()[0].stop()
    threads, files = threading.active_count(), psutil.Process().num_fds()
    for _ in range(3):
        started()[0].stop()
    assert threading.active_count() == threads
    assert psutil.Process().num_fds() == files
