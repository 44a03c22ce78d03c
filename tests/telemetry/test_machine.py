import os
import subprocess
import sys

import psutil
import pytest

from labkit.hardware import machine as host_room
from labkit.telemetry.machine import Host
from tests.telemetry.simulated import Clock, until

PID = 4242
CPU = Host.metrics.index


class Machine:
    """A made /proc and /sys, on which only what a test needs is there."""

    def __init__(self, root):
        self.root, self.clock = root, Clock(100.0)
        self.busy = [(0, 0)] * len(host_room.usable_cores())
        self.cores(self.busy)
        self.memory(100, 60)
        self.write(f"proc/{PID}/statm", "900 25 3 4 0 6 0\n")

    def write(self, path, content):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)

    def cores(self, times):
        """Busy and idle ticks of each core, spread over the columns that count as such."""
        lines = ["cpu  1 2 3 4 5 6 7 8 0 0"]
        for core, (busy, idle) in zip(host_room.usable_cores(), times, strict=True):
            third = busy // 3
            columns = [third, 0, third, idle - idle // 4, idle // 4, busy - 2 * third, 0, 0, 77, 0]
            lines.append(f"cpu{core} {' '.join(map(str, columns))}")
        self.write("proc/stat", "\n".join([*lines, "intr 5 0 0", "ctxt 9"]))

    def memory(self, total, available):
        self.write(
            "proc/meminfo", f"MemTotal: {total} kB\nMemFree: 1 kB\nMemAvailable: {available} kB\n"
        )

    def quota(self, cores, used_seconds):
        self.write("proc/self/cgroup", "0::/\n")
        self.write("proc/self/mountinfo", "30 20 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
        self.write("sys/fs/cgroup/cpu.max", f"{int(cores * 100_000)} 100000\n")
        self.write("sys/fs/cgroup/cpu.stat", f"usage_usec {int(used_seconds * 1e6)}\nuser_usec 1\n")

    def host(self):
        return Host(PID, self.root, self.clock)


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def read(host, device=0, metric="utilisation"):
    (row,) = host.read().rows
    return row.values[device][CPU(metric)]


def everywhere(busy, idle):
    return [(busy, idle)] * len(host_room.usable_cores())


def test_utilisation_is_the_share_of_time_that_was_not_idle(machine):
    host = machine.host()
    host.open()
    assert read(host) is None  # nothing to compare with
    machine.clock.now += 0.1
    machine.cores([(30, 10), *everywhere(0, 40)[1:]])
    (row,) = host.read().rows
    cores = [values[0] for values in row.values[1:]]
    assert cores == [75.0] + [0.0] * (len(cores) - 1)
    assert row.values[0][0] == pytest.approx(75.0 / len(cores))
    assert row.time == machine.clock.now


def test_a_look_right_after_another_has_no_utilisation_and_spoils_none(machine):
    host = machine.host()
    host.open()
    host.read()
    machine.clock.now += 0.09
    machine.cores(everywhere(2, 7))
    assert read(host) is not None
    machine.clock.now += 0.005  # a mark
    machine.cores(everywhere(3, 7))
    (row,) = host.read().rows
    assert [values[0] for values in row.values] == [None] * len(row.values)
    machine.clock.now += 0.1
    machine.cores(everywhere(12, 7))
    assert read(host) == 100.0


def test_glances_give_the_rows_that_looks_at_the_same_times_give(machine):
    looking, glancing = machine.host(), machine.host()
    looking.open()
    glancing.open()
    truth, seen, cores = list(looking.read().rows), list(glancing.read().rows), len(machine.busy)
    for k in range(1, 31):
        machine.clock.now += 0.1
        for core in range(cores):
            machine.busy[core] = (50 * k + 3 * (k % (core + 2)), 50 * k)
        machine.cores(machine.busy)
        machine.memory(1000, 900 - k)
        machine.write(f"proc/{PID}/statm", f"900 {25 + k} 3 4 0 6 0\n")
        truth += looking.read().rows
        if k % 10:
            assert glancing.glance()
        else:
            seen += glancing.read().rows
    assert [row.time for row in seen] == [row.time for row in truth]
    memories = 0
    for one, other in zip(seen, truth, strict=True):
        assert [values[0] for values in one.values] == [values[0] for values in other.values]
        # Memory is not looked at each time; where it is, it is that of this moment.
        for column in (CPU("memory"), CPU("process_memory")):
            assert one.values[0][column] in (None, other.values[0][column])
        memories += one.values[0][CPU("memory")] is not None
    assert 6 <= memories <= 12
    assert len({row.values[0][0] for row in seen}) > 3


def test_a_glance_that_comes_too_soon_after_another_adds_nothing(machine):
    host = machine.host()
    host.open()
    host.read()
    for step, rows in ((0.02, 0), (0.02, 0), (0.02, 1), (0.02, 1), (0.1, 2)):
        machine.clock.now += step
        assert host.glance()
        assert len(host._glances) == rows
    assert len(host.read().rows) == 3


def test_the_memory_at_a_mark_is_seen_however_soon_it_comes_after_another_look(machine):
    host = machine.host()
    host.open()
    host.read()
    machine.clock.now += 0.1
    assert host.glance()  # with the memory, which is then not looked at for a while
    for step, available in ((0.01, 30), (0.03, 20), (0.06, 10)):
        machine.clock.now += step
        machine.memory(100, available)
        assert host.glance(marked=True)
    machine.clock.now += 0.1
    rows = host.read().rows[1:-1]
    assert [row.values[0][CPU("memory")] for row in rows] == [kb * 1024 for kb in (70, 80, 90)]


def test_a_process_that_ends_between_glances_is_lost_and_costs_nothing_else(machine):
    host = machine.host()
    host.open()
    host.read()
    machine.clock.now += 0.1
    assert host.glance()
    machine.write(f"proc/{PID}/statm", "")
    machine.clock.now += 0.5
    host.glance()
    machine.clock.now += 0.1
    reading = host.read()
    assert [row.values[0][CPU("process_memory")] for row in reading.rows[1:]] == [None, None]
    assert [(state.metric, state.why) for state in reading.states] == [("process_memory", "silent")]
    assert reading.rows[-1].values[0][CPU("memory")] == 40 * 1024
    machine.write(f"proc/{PID}/statm", "900 25 3 4 0 6 0\n")
    machine.clock.now += 10.1
    assert [state.why for state in host.read().states] == ["fine"]


def test_where_something_is_not_in_files_it_cannot_only_be_glanced_at(machine):
    (machine.root / f"proc/{PID}/statm").unlink()
    host = Host(os.getpid(), machine.root, machine.clock)  # whose memory psutil tells
    host.open()
    host.read()
    machine.clock.now += 0.1
    assert not host.glance()


def test_a_core_whose_counter_goes_back_is_not_beyond_its_scale(machine):
    machine.cores(everywhere(100, 100))
    host = machine.host()
    host.open()
    host.read()
    machine.clock.now += 0.1
    machine.cores(everywhere(110, 96))  # Linux's idle counters do that
    assert read(host) == 100.0


def test_in_a_container_with_a_quota_utilisation_is_the_share_of_the_quota(machine):
    quota = len(host_room.usable_cores()) / 4
    machine.quota(quota, used_seconds=50.0)
    host = machine.host()
    _, states = host.open()
    (note,) = [state for state in states if state.why == "note"]
    assert f"{quota:g} cores' worth" in note.says
    read(host)
    machine.clock.now += 1.0
    machine.quota(quota, used_seconds=50.0 + 0.5 * quota)
    machine.cores(everywhere(1, 99))
    assert read(host) == pytest.approx(50.0)


def test_memory_is_what_is_not_available_and_that_of_the_process_named(machine):
    host = machine.host()
    host.open()
    assert read(host, metric="memory") == 40 * 1024
    assert read(host, metric="process_memory") == 25 * os.sysconf("SC_PAGE_SIZE")


def test_a_container_with_a_limit_shows_its_own_memory(machine):
    machine.quota(1000, 0)
    machine.write("sys/fs/cgroup/memory.max", "5000000\n")
    machine.write("sys/fs/cgroup/memory.current", "3000000\n")
    machine.write("sys/fs/cgroup/memory.stat", "anon 1\ninactive_file 1000000\n")
    host = machine.host()
    devices, _ = host.open()
    assert devices[0].memory_total == 5_000_000
    assert read(host, metric="memory") == 2_000_000


def test_what_this_machine_cannot_tell_is_said_once_and_is_no_zero(machine):
    host = machine.host()
    _, states = host.open()
    missing = {state.metric: state for state in states if state.why == "not supported"}
    assert missing.keys() == {"power", "energy", "temperature", "clock"}
    assert all(state.device == "cpu" and state.says.endswith(".") for state in states)
    for _ in range(3):
        reading = host.read()
        assert reading.states == ()
        assert all(reading.rows[0].values[0][CPU(metric)] is None for metric in missing)


def test_energy_temperature_and_clock_where_the_machine_has_them(machine):
    for name, content in (("name", "package-0"), ("max_energy_range_uj", 10**9)):
        machine.write(f"sys/class/powercap/intel-rapl:0/{name}", f"{content}\n")
    machine.write("sys/class/powercap/intel-rapl:0/energy_uj", "1000000\n")
    machine.write("sys/class/hwmon/hwmon0/name", "nvme\n")
    machine.write("sys/class/hwmon/hwmon0/temp1_input", "30000\n")
    machine.write("sys/class/hwmon/hwmon1/name", "coretemp\n")
    machine.write("sys/class/hwmon/hwmon1/temp1_input", "61000\n")
    machine.write("sys/class/hwmon/hwmon1/temp1_label", "Package id 0\n")
    numbers = host_room.usable_cores()
    for core in numbers:
        speed = 2_000_000 if core == numbers[0] else 3_000_000
        machine.write(f"sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq", f"{speed}\n")
    host = machine.host()
    _, states = host.open()
    assert states == ()
    assert read(host, metric="temperature") == 61.0
    machine.clock.now += 0.1
    machine.write("sys/class/powercap/intel-rapl:0/energy_uj", "5000000\n")
    values = host.read().rows[0].values
    assert values[0][CPU("energy")] == pytest.approx(4.0)
    assert values[0][CPU("power")] == pytest.approx(40.0)
    assert values[0][CPU("temperature")] is None  # it changes slowly, and is asked once a second
    clocks = {}
    for _ in numbers:
        values = host.read().rows[0].values
        clocks |= {
            core: row[CPU("clock")]
            for core, row in zip(numbers, values[1:], strict=True)
            if row[CPU("clock")] is not None
        }
    assert clocks.pop(numbers[0]) == 2000.0
    assert set(clocks.values()) <= {3000.0}
    mean = (2000 + 3000 * len(clocks)) / (1 + len(clocks))
    assert values[0][CPU("clock")] == pytest.approx(mean)


def test_a_gauge_that_fails_is_told_takes_no_other_along_and_comes_back(machine):
    host = machine.host()
    host.open()
    machine.write("proc/meminfo", "garbled")
    reading = host.read()
    (state,) = reading.states
    assert (state.device, state.metric, state.why) == ("cpu", "memory", "silent")
    assert reading.rows[0].values[0][CPU("memory")] is None
    assert reading.rows[0].values[0][CPU("process_memory")] is not None
    machine.memory(100, 50)
    machine.clock.now += 1
    assert read(host, metric="memory") is None
    machine.clock.now += 10
    reading = host.read()
    assert [state.why for state in reading.states] == ["fine"]
    assert reading.rows[0].values[0][CPU("memory")] == 50 * 1024


def test_a_counter_of_energy_that_leaps_is_implausible_for_energy_and_power(machine):
    for name, content in (
        ("name", "package-0"),
        ("max_energy_range_uj", 10**12),
        ("energy_uj", 10**11),
    ):
        machine.write(f"sys/class/powercap/intel-rapl:0/{name}", f"{content}\n")
    host = machine.host()
    host.open()
    host.read()
    machine.clock.now += 0.1
    machine.write("sys/class/powercap/intel-rapl:0/energy_uj", "5\n")
    reading = host.read()
    assert {(s.metric, s.why) for s in reading.states} == {
        ("energy", "implausible"),
        ("power", "implausible"),
    }
    assert reading.rows[0].values[0][CPU("power")] is None
    machine.clock.now += 0.1
    assert {s.why for s in host.read().states} == {"fine"}


def test_a_process_that_has_ended_is_lost():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    host = Host(process.pid)
    host.open()
    assert read(host, metric="process_memory") > 0
    process.communicate(timeout=20)
    reading = host.read()
    assert [(s.metric, s.why) for s in reading.states] == [("process_memory", "lost")]
    assert reading.rows[0].values[0][CPU("process_memory")] is None
    host.close()


def test_this_machine_gives_true_numbers_by_its_files_and_by_psutil(tmp_path):
    """The made root has no files, as on a system that is not Linux."""
    for root in (tmp_path, tmp_path.__class__("/")):
        host = Host(os.getpid(), root)
        devices, _ = host.open()
        assert len(devices) == 1 + len(host_room.usable_cores())
        host.read()
        found = until(lambda h=host: read(h))
        assert 0 <= found <= 100
        values = host.read().rows[0].values
        assert all(len(row) == len(Host.metrics) for row in values)
        own = values[0][CPU("process_memory")]
        assert own == pytest.approx(psutil.Process().memory_info().rss, rel=0.1)
        host.close()


def test_opening_and_closing_leaves_no_file_open():
    host = Host(os.getpid())
    host.open()
    host.close()
    before = psutil.Process().num_fds()
    for _ in range(5):
        host.open()
    host.close()
    host.close()
    assert psutil.Process().num_fds() == before
