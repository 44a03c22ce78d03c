"""The sampler's process, as the kernel starts, asks and ends it: whatever happens, none is left."""

import json
import os
import signal
import threading
import time

import psutil
import pytest

from labkit.telemetry.client import SamplerClient
from tests.cluster.private_slurm import wait_for


class Lines:
    """What a client has handed on."""

    def __init__(self):
        self.all = []

    def take(self, text):
        self.all += map(json.loads, text.split("\n"))

    def times(self):
        """Of the rows of the host."""
        return [line[1] for line in list(self.all) if isinstance(line, list) and line[0] == 1]

    def notes(self, key):
        return [line for line in list(self.all) if isinstance(line, dict) and key in line]


@pytest.fixture
def started():
    """Starts clients, and stops them whatever the test does."""
    begun = []

    def start(every=0.1):
        lines = Lines()
        client = SamplerClient(lines.take, every, title="a test")
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


def test_header_sources_rows_and_the_end_come_in_this_order_and_nothing_is_left(started):
    started()[0].stop()
    threads, files = threading.active_count(), psutil.Process().num_fds()
    client, lines = started()
    assert client.flush(20)
    pid = client.pid
    client.stop()
    client.stop()
    assert lines.all[0]["labkit"] == "recording"
    assert (lines.all[0]["clock"], lines.all[0]["title"]) == (client.header.clock, "a test")
    assert [line["source"] for line in lines.notes("source")] == ["gpus", "host"]
    assert lines.times()
    assert "end" in lines.all[-1]
    assert not client.alive
    assert not psutil.pid_exists(pid)
    assert (threading.active_count(), psutil.Process().num_fds()) == (threads, files)


def test_a_sampler_that_dies_is_told_for_each_source(started):
    client, lines = started()
    os.kill(client.pid, signal.SIGKILL)
    wait_for(lambda: not client.alive, "its end")
    silent = [line["device"] for line in lines.notes("state") if line["state"] == "silent"]
    assert silent == ["gpus", "host"]
    assert "exit status -9" in str(lines.notes("state"))
    begun = time.monotonic()
    assert not client.flush(20)
    assert time.monotonic() < begun + 10  # nothing will answer


def test_a_sampler_that_hangs_does_not_hold_up_the_program_and_the_stop(started):
    client, _ = started()
    os.kill(client.pid, signal.SIGSTOP)
    for _ in range(10_000):  # more than a pipe takes
        client.sample()
    client.stop(timeout=0.2)
    assert is_gone(client.pid)
    assert not client.alive
