"""Cores and memory, and a container's limits, read from /proc and /sys trees made for the test."""

from typing import NamedTuple

import pytest

from labkit.hardware.machine import core_times, limits, read_cores, read_memory

PROC = {"proc/self/cgroup": "0::/a/b\n"}


@pytest.fixture
def tree(tmp_path):
    def tree(files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return tree


def test_the_tightest_limit_of_all_parent_groups_holds(tree):
    root = tree(
        {
            **PROC,
            "sys/fs/cgroup/cpu.max": "400000 100000\n",
            "sys/fs/cgroup/a/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/a/cpu.stat": "usage_usec 7\n",
            "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
            "sys/fs/cgroup/memory.max": "4000000000\n",
            "sys/fs/cgroup/a/b/memory.max": "3000000000\n",
            "sys/fs/cgroup/a/b/memory.current": "1200000000\n",
            "sys/fs/cgroup/a/b/memory.stat": "anon 1\ninactive_file 200000000\n",
            "sys/fs/cgroup/a/memory.max": "max\n",
        }
    )
    found = limits(root)
    assert (found.cores, found.memory, found.memory_used) == (1.5, 3_000_000_000, 1_000_000_000)
    assert found.cpu_stat == root / "sys/fs/cgroup/a/cpu.stat"


def test_a_container_that_mounts_only_its_own_group(tree):
    root = tree(
        {
            "proc/self/cgroup": "0::/docker/f00\n",
            "sys/fs/cgroup/cpu.max": "50000 100000\n",
            "sys/fs/cgroup/memory.max": "200000000\n",
            "sys/fs/cgroup/memory.current": "50000000\n",
        }
    )
    found = limits(root)
    assert read_cores(found).quota == 0.5
    assert read_cores(found).usable == 1
    assert read_memory(found).limit == 200_000_000
    assert read_memory(found).available <= 150_000_000


class Times(NamedTuple):
    """Of a core, as psutil gives them: the user's hold those of guests."""

    user: float = 4.0
    idle: float = 5.0
    iowait: float = 2.0
    guest: float = 1.0
    guest_nice: float = 0.5


def test_a_core_that_waits_for_a_disk_is_idle_and_a_guest_counts_once(monkeypatch):
    monkeypatch.setattr("psutil.cpu_times", lambda percpu: [Times()])
    assert core_times() == {0: (4.0, 11.0)}


def test_without_limits_the_whole_machine_is_there(tree):
    version_1 = {"proc/self/cgroup": "3:cpu:/\n"}
    for root in (tree(PROC), tree(version_1), tree({}) / "nowhere"):
        found = limits(root)
        assert (found.cores, found.memory) == (None, None)
        assert read_memory(found).limit is None
        assert read_cores(found).usable == read_cores(found).affinity
