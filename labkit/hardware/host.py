"""Cores and memory of this machine: the only file that talks to psutil."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from pathlib import Path

from labkit.hardware.cgroup import Limits, limits
from labkit.hardware.parts import Cores, Memory

__all__ = ["read_cores", "read_memory", "system_text"]


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
