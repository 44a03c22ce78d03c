"""The processor and the memory as a source, on this machine and on made /proc and /sys."""

import json
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from labkit.telemetry.host import Host

PID = 4242
COLUMN = Host.metrics.index
CORES = tuple(
    range(len(psutil.Process().cpu_affinity()) if hasattr(os, "sched_getaffinity") else 1)
)


class Machine:
    """A made /proc and /sys, on which only what a test needs is there; and its time."""

    def __init__(self, root, monkeypatch):
        self.root, self.now = root, 100.0
        monkeypatch.setattr("psutil.virtual_memory", lambda: self.main)
        monkeypatch.setattr("labkit.hardware.machine.process_memory", lambda pid: self.resident)
        self.cores([(0, 0)] * len(CORES))
        self.main, self.resident = SimpleNamespace(total=100, available=60), 25

    def write(self, path, content):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{content}")

    def cores(self, times):
        """Busy and idle ticks of each core, spread over the columns that count as such."""
        lines = ["cpu  1 2 3 4 5 6 7 8 0 0"]
        for core, (busy, idle) in zip(psutil.Process().cpu_affinity(), times, strict=True):
            third = busy // 3
            columns = [third, 0, third, idle - idle // 4, idle // 4, busy - 2 * third, 0, 0, 77, 0]
            lines.append(f"cpu{core} {' '.join(map(str, columns))}")
        self.write("proc/stat", "\n".join([*lines, "intr 5 0 0", "ctxt 9"]))

    def quota(self, cores, used_seconds):
        self.write("proc/self/cgroup", "0::/\n")
        self.write("proc/self/mountinfo", "30 20 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
        self.write("sys/fs/cgroup/cpu.max", f"{int(cores * 100_000)} 100000\n")
        self.write("sys/fs/cgroup/cpu.stat", f"usage_usec {int(used_seconds * 1e6)}\nuser_usec 1\n")

    def host(self):
        """The source, opened, after its first sample; and what was said of it."""
        host = Host(PID, self.root, lambda: self.now)
        self.devices, self.states = host.open()
        host.sample()
        return host

    def later(self, host, seconds=0.1, *, edge=False):
        self.now += seconds
        host.sample(edge)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    return Machine(tmp_path, monkeypatch)


def numbers(row):
    return json.loads(f"[{row[1]}]")


def column(rows, metric):
    return [numbers(row)[0][COLUMN(metric)] for row in rows]


def all_cores(busy, idle):
    return [(busy, idle)] * len(CORES)


def test_utilisation_is_the_share_of_time_that_was_not_idle(machine):
    host = machine.host()
    machine.cores([(30, 10), *all_cores(0, 40)[1:]])
    machine.later(host)
    first, second = host.take()[0]
    assert column([first], "utilisation") == [None]  # nothing to compare with
    cores = [values[0] for values in numbers(second)[1:]]
    assert cores == [75.0] + [0.0] * (len(cores) - 1)
    assert numbers(second)[0][0] == pytest.approx(75.0 / len(cores), abs=0.005)
    assert second[0] == machine.now


def test_a_sample_soon_after_another_spoils_no_utilisation(machine):
    host = machine.host()
    machine.cores(all_cores(2, 7))
    machine.later(host, 0.09)
    machine.later(host, 0.005)  # adds nothing
    machine.cores(all_cores(3, 7))
    machine.later(host, 0.005, edge=True)
    machine.cores(all_cores(12, 17))
    machine.later(host)
    shares = column(host.take()[0], "utilisation")
    assert shares == [None, pytest.approx(100 * 2 / 9, abs=0.01), None, 50.0]


def test_the_memory_at_the_edge_of_a_span_is_that_of_the_moment(machine):
    host = machine.host()
    for seconds, available in ((0.01, 30), (0.03, 20), (0.06, 10)):
        machine.main.available = available
        machine.later(host, seconds, edge=True)
    machine.resident = 26
    machine.later(host, edge=True)
    machine.later(host)  # too soon for a memory that no span asks for
    rows = host.take()[0]
    assert column(rows, "memory") == [40, 70, 80, 90, 90, None]
    assert column(rows, "process_memory")[-2:] == [26, None]


def test_in_a_container_with_a_quota_utilisation_is_the_share_of_the_quota(machine):
    quota = len(CORES) / 4
    machine.quota(quota, used_seconds=50.0)
    host = machine.host()
    (note,) = [state for state in machine.states if state.why == "note"]
    assert f"may use {quota:g} of" in note.says
    machine.quota(quota, used_seconds=50.0 + 0.5 * quota)
    machine.cores(all_cores(1, 99))
    machine.later(host, 1.0)
    machine.quota(quota, used_seconds=50.0 + 2 * quota)
    machine.later(host, 1.0)  # a burst beyond the quota
    assert column(host.take()[0], "utilisation")[1:] == [pytest.approx(50.0), 100.0]


@pytest.mark.parametrize("files", [True, False])
def test_this_machine_gives_true_numbers_by_its_files_and_by_psutil(tmp_path, files):
    """The made root has no files, as on a system that is not Linux."""
    moment = [100.0]
    host = Host(os.getpid(), Path("/") if files else tmp_path, lambda: moment[0])
    devices, _ = host.open()
    assert len(devices) == 1 + len(CORES)
    host.sample()
    until = psutil.Process().cpu_times().user + 0.05
    while psutil.Process().cpu_times().user < until:
        sum(range(10_000))  # so that some core was busy
    moment[0] += 1.0
    host.sample()
    rows = host.take()[0]
    assert 0 < column(rows, "utilisation")[1] <= 100
    assert all(len(values) == len(Host.metrics) for values in numbers(rows[1]))
    own = column(rows, "process_memory")[1]
    assert own == pytest.approx(psutil.Process().memory_info().rss, rel=0.1)
    used = psutil.virtual_memory()
    assert column(rows, "memory")[0] == pytest.approx(used.total - used.available, rel=0.3)


def test_of_a_process_that_has_ended_no_memory_is_told():
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as program:
        host = Host(program.pid)
        host.open()
    host.sample(edge=True)
    ended = Host(program.pid)
    ended.open()
    ended.sample(edge=True)
    for one in (host, ended):
        assert column(one.take()[0], "process_memory") == [None]
