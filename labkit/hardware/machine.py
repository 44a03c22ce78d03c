"""Cores and memory that this process may use, also inside a container. Only this file uses psutil.

A container with a quota of two cores still shows all cores of its host, so a program that counts
cores starts too many threads. Quotas are read from cgroup version 2, parent groups included.
"""

import os
import platform
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Cores:
    """The cores of the machine, and those that this process may use."""

    name: str
    logical: int
    affinity: int
    quota: float | None  # cores' worth of time that a container allows, where it limits it

    @property
    def usable(self) -> int:
        """Whole cores that this process can keep busy."""
        return max(1, int(min(self.affinity, self.quota or self.affinity)))


@dataclass(frozen=True)
class Memory:
    """Main memory in bytes; `limit` is what a container allows, where it allows less than all."""

    total: int
    available: int
    limit: int | None


@dataclass(frozen=True)
class Limits:
    """What a container allows; None where there is no limit."""

    cores: float | None  # cores' worth of time
    cpu_stat: Path | None  # the file that counts the time of the group which sets `cores`
    memory: int | None  # bytes
    memory_used: int | None  # of the group that sets `memory`, without file pages it can drop


def limits(root: Path = Path("/")) -> Limits:
    """Returns the tightest limits on this process. `root` is where /proc and /sys lie."""
    cores, memory, cpu_stat, group = None, None, None, None
    for folder in _groups(root):
        quota, _, period = _text(folder / "cpu.max").partition(" ")
        if quota.isdecimal() and (cores is None or int(quota) / int(period) < cores):
            cores, cpu_stat = int(quota) / int(period), folder / "cpu.stat"
        most = _text(folder / "memory.max")
        if most.isdecimal() and (memory is None or int(most) < memory):
            memory, group = int(most), folder
    return Limits(cores, cpu_stat, memory, None if group is None else _memory_used(group))


def _groups(root: Path) -> list[Path]:
    """Returns the folder of this process's control group, and those of the groups above it.

    A container may show only its own group, at the top, and still name it as the host does.
    """
    for line in _text(root / "proc/self/cgroup").splitlines():
        if line.startswith("0::"):
            inner = Path(line.removeprefix("0::/"))
            return [root / "sys/fs/cgroup" / group for group in (inner, *inner.parents)]
    return []


def _memory_used(group: Path) -> int | None:
    used = _text(group / "memory.current")
    stat = dict(line.split(" ") for line in _text(group / "memory.stat").splitlines())
    return max(0, int(used) - int(stat.get("inactive_file", 0))) if used else None


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:  # macOS, or a system without this controller
        return ""


def read_cores(allowed: Limits | None = None) -> Cores:
    """Returns the cores of the machine, and how many of them this process may use."""
    import psutil

    allowed = allowed or limits()
    affinity = len(usable_cores())
    return Cores(
        name=_processor(),
        logical=psutil.cpu_count() or affinity,
        affinity=affinity,
        quota=allowed.cores if allowed.cores is not None and allowed.cores < affinity else None,
    )


def read_memory(allowed: Limits | None = None) -> Memory:
    """Returns main memory, and what a container leaves of it."""
    import psutil

    allowed = allowed or limits()
    machine = psutil.virtual_memory()
    if allowed.memory is None or allowed.memory >= machine.total:
        return Memory(machine.total, machine.available, None)
    left = max(0, allowed.memory - (allowed.memory_used or 0))
    return Memory(machine.total, min(machine.available, left), allowed.memory)


def usable_cores(pid: int | None = None) -> tuple[int, ...]:
    """Returns the numbers of the cores that a process (or this one) may run on."""
    import psutil

    try:
        return tuple(sorted(psutil.Process(pid).cpu_affinity()))
    except (AttributeError, OSError, psutil.Error):  # macOS has no affinity
        return tuple(range(psutil.cpu_count() or os.cpu_count() or 1))


def cpu_seconds(pids: Iterable[int]) -> float:
    """Returns the CPU seconds that processes have used; those that have ended count nothing."""
    import psutil

    used = 0.0
    for pid in pids:
        with suppress(psutil.Error):
            used += sum(psutil.Process(pid).cpu_times()[:2])
    return used


def core_times() -> dict[int, tuple[float, float]]:
    """Returns of each core the seconds that it was busy and the seconds that passed since boot."""
    import psutil

    found = {}
    for core, times in enumerate(psutil.cpu_times(percpu=True)):
        idle = times.idle + getattr(times, "iowait", 0.0)
        # A guest's time is in the user's time already.
        total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
        found[core] = (total - idle, total)
    return found


def busy(seconds: float) -> float:
    """Returns the busy share of all cores, from 0 to 1, while this thread sleeps for `seconds`."""
    before = core_times()
    time.sleep(seconds)
    working, passed = 0.0, 0.0
    for core, (work, total) in core_times().items():
        working += work - before[core][0]
        passed += total - before[core][1]
    return working / passed if passed else 0.0


def process_memory(pid: int) -> int | None:
    """Returns the bytes of main memory that a process holds; None when it has ended."""
    import psutil

    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return None


def user_and_parents(pid: int) -> tuple[str, tuple[int, ...]]:
    """Returns a process's login name and its parents; "" and () when it is not seen from here."""
    import psutil

    try:
        process = psutil.Process(pid)
        return process.username(), tuple(one.pid for one in process.parents())
    except psutil.Error:
        return "", ()


@cache
def _processor() -> str:
    for line in _text(Path("/proc/cpuinfo")).splitlines():
        if line.startswith("model name"):
            return " ".join(line.partition(":")[2].split())
    return platform.processor() or platform.machine() or "unknown processor"
