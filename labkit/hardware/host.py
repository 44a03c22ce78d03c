"""Cores and memory of this machine: the only file that talks to psutil."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from pathlib import Path

from labkit.hardware.cgroup import Limits, group_folders, limits, quotas
from labkit.hardware.parts import Cores, Memory

__all__ = [
    "core_times",
    "process_memory",
    "quota_file",
    "read_cores",
    "read_limited_memory",
    "read_memory",
    "system_text",
    "usable_cores",
]


def read_cores(allowed: Limits | None = None) -> Cores:
    """Cores of the machine, and how many of them this process may use."""
    import psutil

    allowed = allowed or limits()
    logical = psutil.cpu_count(logical=True) or os.cpu_count() or 1
    try:
        affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else logical
    except OSError:
        affinity = logical
    quota = allowed.cores if allowed.cores is not None and allowed.cores < affinity else None
    physical = psutil.cpu_count(logical=False)
    return Cores(_processor(), physical, logical, affinity, quota)


def read_memory(allowed: Limits | None = None) -> Memory:
    """Main memory, and what a container leaves of it."""
    import psutil

    allowed = allowed or limits()
    machine = psutil.virtual_memory()
    if allowed.memory is None or allowed.memory >= machine.total:
        return Memory(machine.total, machine.available, None)
    left = max(0, allowed.memory - (allowed.memory_used or 0))
    return Memory(machine.total, min(machine.available, left), allowed.memory)


def read_limited_memory(root: Path = Path("/")) -> int:
    """Bytes that a container with a limit uses, without file pages that it can drop."""
    used = limits(root).memory_used
    if used is None:
        raise OSError("the container does not say what it uses")
    return used


def quota_file(allowed: Limits, root: Path = Path("/")) -> Path | None:
    """The file that counts the processor time of the group that has the tightest quota."""
    for folder in group_folders(root, "cpu"):
        if allowed.cores in quotas(folder):
            for file in (folder / "cpu.stat", folder / "cpuacct.usage"):
                try:
                    content = file.read_text()
                except OSError:
                    continue
                # Version 1 has a cpu.stat of its own, about throttling.
                if file.name == "cpuacct.usage" or content.startswith("usage_usec"):
                    return file
    return None


def usable_cores(pid: int | None = None) -> tuple[int, ...]:
    """The numbers of the cores that a process (or this one) may run on."""
    import psutil

    try:
        return tuple(sorted(psutil.Process(pid).cpu_affinity()))
    except (AttributeError, OSError, psutil.Error):  # macOS ties no process to a core
        return tuple(range(psutil.cpu_count(logical=True) or os.cpu_count() or 1))


def core_times() -> dict[int, tuple[float, float]]:
    """Of each core, the seconds that it was busy and the seconds that have passed, since boot."""
    import psutil

    found = {}
    for core, times in enumerate(psutil.cpu_times(percpu=True)):
        idle = times.idle + getattr(times, "iowait", 0.0)
        # A guest's time is in the user's time already.
        total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
        found[core] = (total - idle, total)
    return found


def process_memory(pid: int) -> int:
    """Bytes of main memory that a process holds. ProcessLookupError when it has ended."""
    import psutil

    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.NoSuchProcess as fault:
        raise ProcessLookupError(pid) from fault
    except psutil.AccessDenied as fault:
        raise PermissionError(pid) from fault


def system_text() -> str:
    """The operating system and the processor's family."""
    return f"{platform.system() or 'unknown system'} {platform.machine()}".strip()


@cache
def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("model name", "Hardware", "cpu model")):
                return " ".join(line.partition(":")[2].split())
    except (OSError, UnicodeDecodeError):
        pass
    if platform.system() == "Darwin":
        try:
            asked = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
            answer = subprocess.run(asked, capture_output=True, text=True, timeout=2, check=True)
            return answer.stdout.strip() or platform.machine()
        except (OSError, subprocess.SubprocessError):
            pass
    return platform.processor() or platform.machine() or "unknown processor"
