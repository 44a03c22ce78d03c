"""A container's limits, read from made-up /proc and /sys trees of both versions of cgroups."""

import pytest

from labkit.hardware.cgroup import limits
from labkit.hardware.host import read_cores, read_memory


@pytest.fixture
def tree(tmp_path):
    def tree(files: dict[str, str]):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return tree


V2 = {
    "proc/self/cgroup": "0::/a/b\n",
    "proc/self/mountinfo": "31 23 0:28 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n",
}


def test_version_2_takes_the_tightest_folder_above(tree):
    root = tree(
        {
            **V2,
            "sys/fs/cgroup/a/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
            "sys/fs/cgroup/a/b/memory.max": "3000000000\n",
            "sys/fs/cgroup/a/b/memory.current": "1200000000\n",
            "sys/fs/cgroup/a/b/memory.stat": "anon 1\ninactive_file 200000000\n",
            "sys/fs/cgroup/a/memory.max": "max\n",
        }
    )
    found = limits(root)
    assert (found.cores, found.memory, found.memory_used) == (1.5, 3_000_000_000, 1_000_000_000)


def test_version_1_inside_a_container_that_shows_its_own_folder_as_the_root(tree):
    root = tree(
        {
            "proc/self/cgroup": "4:memory:/docker/f00\n3:cpu,cpuacct:/docker/f00\n0::/\n",
            "proc/self/mountinfo": (
                "1 2 0:3 /docker/f00 /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
                "1 2 0:4 /docker/f00 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
            ),
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "50000\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "2000000000\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "500000000\n",
        }
    )
    found = limits(root)
    assert (found.cores, found.memory, found.memory_used) == (0.5, 2_000_000_000, 500_000_000)
    assert read_cores(found).quota == 0.5
    assert read_cores(found).usable == 1
    assert read_memory(found).limit == 2_000_000_000
    assert read_memory(found).available <= 1_500_000_000


def test_no_limit_is_none_in_both_versions(tree):
    root = tree(
        {
            "proc/self/cgroup": "4:memory:/\n3:cpu:/\n0::/\n",
            "proc/self/mountinfo": (
                "1 2 0:3 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
                "1 2 0:4 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
                "1 2 0:5 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
            ),
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        }
    )
    found = limits(root)
    assert (found.cores, found.memory) == (None, None)
    assert read_memory(found).limit is None


@pytest.mark.parametrize("text", ["", "nonsense\n", "::::\n - \n1 2 - cgroup2\n"])
def test_an_odd_or_missing_tree_gives_no_limits(tree, text):
    root = tree({"proc/self/cgroup": text, "proc/self/mountinfo": text})
    assert (limits(root).cores, limits(root).memory) == (None, None)
    assert limits(root / "nowhere").cores is None
