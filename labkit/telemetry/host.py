"""The processor and the main memory as a source of samples: what a laptop without a GPU can show.

The times of the cores are read at every sample: on Linux from the kernel's own files, which stay
open (/proc/stat, cpu.stat of a container) and are worked out later, in `take`; the memory twice a
second. Where there are no such files psutil gives both.

A core counts its time in steps of 10 ms, so that a sample at 10 Hz tells its utilisation to about
a tenth; over a second, to a hundredth.
"""

import math
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from labkit.hardware import machine
from labkit.telemetry.format import values_text
from labkit.telemetry.metrics import Device, DeviceState

NAMES = ("utilisation", "memory", "process_memory")
SHORT = 0.045  # seconds: over less, counters tell nothing
MEMORY = 0.45  # seconds between two samples of the memory, but for the edges of spans
PAGE = os.sysconf("SC_PAGE_SIZE")
CORES = 64  # more cores than this are not shown singly
Times = dict[int, tuple[float, float]]  # for each core: busy time, total time


class HostSample(NamedTuple):
    """What was read at a moment. The times of the cores are worked out later, in `take`."""

    time: float
    content: dict[str, Any]


class Host:
    """The processor ("cpu") and each core that may be used ("core3").

    Utilisation is the mean of the usable cores; where a container has a quota of processor time,
    the share of that quota. Memory is the machine's, or the container's where that has a limit;
    `process_memory` is the resident memory of process `pid`, without its children.

    `root` lets a test bring its own /proc and /sys.
    """

    name = "host"
    metrics: tuple[str, ...] = NAMES

    def __init__(
        self, pid: int, root: Path = Path("/"), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._pid, self._root, self._clock = pid, root, clock
        self._readings: dict[str, Callable[[], Any]] = {}
        self._slow: dict[str, Callable[[], Any]] = {}
        self._kept: list[HostSample] = []
        self._before = HostSample(-math.inf, {})
        self._memory_due = -math.inf

    def open(self) -> tuple[tuple[Device, ...], tuple[DeviceState, ...]]:
        """Returns the devices, and states of what this machine does not report."""
        states = [DeviceState(self._clock(), "cpu", "energy", "not supported", _NO_ENERGY)]
        allowed = machine.limits(self._root)
        cores, memory = machine.read_cores(allowed), machine.read_memory(allowed)
        self._cores = machine.usable_cores(self._pid)
        self._shown = self._cores if len(self._cores) <= CORES else ()
        stat = self._file("proc/stat")
        self._readings["times"] = stat or machine.core_times
        self._parse: Callable[[Any], Times] = core_times if stat else dict
        self._quota = None
        if cores.quota and allowed.cpu_stat and (used := self._file(allowed.cpu_stat)):
            self._quota = cores.quota
            self._readings["used"] = lambda: int(used().split(None, 2)[1]) / 1e6  # usage_usec N
            says = _QUOTA.format(cores.quota, len(self._cores))
            states.append(DeviceState(self._clock(), "cpu", "utilisation", "note", says))
        total = memory.limit or memory.total
        self._slow["memory"] = lambda: total - machine.read_memory().available
        if memory.limit is None and (meminfo := self._file("proc/meminfo")):
            self._slow["memory"] = lambda: total - available(meminfo())
        self.follow(self._pid)
        count = f"{len(self._cores)} core{'s' if len(self._cores) != 1 else ''}"
        whole = Device("cpu", f"{cores.name}, {count}", "cpu", total)
        parts = [Device(f"core{n}", f"core {n}", "core", part_of="cpu") for n in self._shown]
        return (whole, *parts), tuple(states)

    def sample(self, edge: bool = False) -> None:
        """Sample now, and keep the sample for `take`. The edge of a span needs the memory, too."""
        now = self._clock()
        if self._kept and now - self._kept[-1].time < SHORT and not edge:
            return
        content = {metric: read() for metric, read in self._readings.items()}
        if edge or now >= self._memory_due:
            self._memory_due = now + MEMORY
            content |= {metric: read() for metric, read in self._slow.items()}
        self._kept.append(HostSample(now, content))

    def take(self) -> tuple[list[tuple[float, str]], tuple[DeviceState, ...]]:
        """Returns the rows since the last call (`values_text`). Nothing new becomes known."""
        kept, self._kept = self._kept, []
        return [(sample.time, self._values(sample)) for sample in kept], ()

    def follow(self, pid: int) -> None:
        """Sample the `process_memory` of this process from now on."""
        self._pid = pid
        statm = self._file(f"proc/{pid}/statm")
        self._slow["process_memory"] = lambda: (
            resident(statm) if statm else machine.process_memory(pid)
        )

    def _values(self, kept: HostSample) -> str:
        now = HostSample(kept.time, {**kept.content, "times": self._parse(kept.content["times"])})
        found = {metric: now.content.get(metric) for metric in NAMES}
        before, busy = self._before, dict[int, float]()
        passed = now.time - before.time
        if passed >= SHORT:
            self._before = now
        if SHORT <= passed < math.inf:
            busy = utilisation(before.content["times"], now.content["times"], self._cores)
            if busy:
                found["utilisation"] = round(sum(busy.values()) / len(busy), 2)
            if self._quota:
                used = now.content["used"] - before.content["used"]
                # A burst may go beyond the quota.
                found["utilisation"] = round(min(100.0, 100 * used / (passed * self._quota)), 2)
        cores = [[busy.get(core), *[None] * (len(NAMES) - 1)] for core in self._shown]
        return values_text([[*found.values()], *cores])

    def _file(self, path: str | Path) -> Callable[[], bytes] | None:
        """Returns a function that reads a file of the kernel anew, or None without such a file."""
        try:
            descriptor = os.open(self._root / path, os.O_RDONLY | os.O_CLOEXEC)
            size = 4096
            while len(os.pread(descriptor, size, 0)) > size // 2:
                size *= 2
        except OSError:  # also of a process that has ended since it was opened
            return None
        return partial(os.pread, descriptor, size, 0)


def available(meminfo: bytes) -> int:
    r"""Returns the bytes of main memory that programs can still get.

    >>> available(b"MemTotal: 9 kB\\nMemFree: 1 kB\\nMemAvailable: 5 kB\\n")
    5120
    """
    return int(meminfo.split(b"MemAvailable:", 1)[1].split(None, 1)[0]) * 1024


def resident(statm: Callable[[], bytes]) -> int | None:
    """Returns the bytes of main memory that a process holds, or None when it has ended."""
    try:
        return int(statm().split(None, 2)[1]) * PAGE or None
    except OSError:
        return None


def core_times(stat: bytes) -> Times:
    r"""Returns busy time and total time of each core, in ticks.

    >>> core_times(b"cpu  9 9\ncpu3 10 0 5 80 5 0 0 0 7 0\nintr 1")
    {3: (15, 100)}
    """
    found: Times = {}
    for line in stat[: stat.find(b"\nintr")].split(b"\n")[1:]:
        # user, nice, system, idle, iowait, irq, softirq, steal; guests are in user already.
        name, *counts = line.split(None, 9)[:9]
        ticks = list(map(int, counts))
        total = sum(ticks)
        found[int(name[3:])] = (total - ticks[3] - ticks[4], total)
    return found


def utilisation(before: Times, now: Times, cores: Sequence[int]) -> dict[int, float]:
    """Returns the utilisation in per cent of each core that both times have.

    >>> utilisation({0: (5, 10), 1: (0, 10)}, {0: (15, 30), 1: (0, 30)}, [0, 1, 2])
    {0: 50.0, 1: 0.0}
    """
    found = {}
    for core in cores:
        if core in before and core in now:
            busy, passed = (new - old for new, old in zip(now[core], before[core], strict=True))
            if passed > 0:  # the kernel's count of idle time may fall a little
                found[core] = round(min(100.0, max(0.0, 100 * busy / passed)), 2)
    return found


_QUOTA = (
    "This container may use {:g} of {} cores' time: the processor's utilisation is the share of "
    "that. The single cores show what all programs on this machine do."
)
_NO_ENERGY = "The processor's energy is not sampled: systems let only their administrator read it."
