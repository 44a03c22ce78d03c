"""The processor and the main memory as a source of samples: what a laptop without a GPU can show.

On Linux a sample reads the kernel's own files, which stay open (/proc/stat, /proc/meminfo,
/proc/PID/statm, cpu.stat of a container); `take` works them out later. Elsewhere psutil is asked.

A core counts its time in steps of 10 ms, so that a sample at 10 Hz tells its utilisation to about
a tenth; over a second, to a hundredth.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from labkit.hardware import machine
from labkit.telemetry.metrics import Device, Row, State

__all__ = ["Host"]

NAMES = ("utilisation", "memory", "process_memory", "power", "energy")
SHORT = 0.045  # seconds: over less, counters tell nothing
MEMORY = 0.45  # seconds between two samples of the memory, but for the edges of spans
LIMITED = 0.95  # and where a container's limit counts: several files tell it, some take long
CORES = 64  # more cores than this are not shown one by one
POSSIBLE = 2_000.0  # watts; no processor in one socket uses more
Times = dict[int, tuple[float, float]]  # of each core: busy and all time


@dataclass
class Reading:
    """How something is read: what `read` gives is kept, and `parse` works it out later."""

    read: Callable[[], Any]
    parse: Callable[[Any], Any]
    every: float = 0.0
    due: float = -math.inf


class Kept(NamedTuple):
    """What was read at one time; what was worked out of it, after `take`."""

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
        self,
        pid: int,
        root: Path = Path("/"),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pid, self._root, self._clock = pid, root, clock
        self._descriptors: list[int] = []
        self._readings: dict[str, Reading] = {}
        self._kept: list[Kept] = []
        self._states: list[State] = []

    def open(self) -> tuple[tuple[Device, ...], tuple[State, ...]]:
        """The devices, and what this machine does not tell of them."""
        self.close()
        allowed = machine.limits(self._root)
        cores, memory = machine.read_cores(allowed), machine.read_memory(allowed)
        self._cores = machine.usable_cores(self._pid)
        self._shown = self._cores if len(self._cores) <= CORES else ()
        self._before, self._joules = Kept(-math.inf, {}), 0.0
        states: list[State] = []

        def tell(why: Any, metric: str, says: str) -> None:
            states.append(State(self._clock(), "cpu", metric, why, says))

        self._open_times(cores.quota, allowed, tell)
        self._open_memory(memory, tell)
        self._open_energy(tell)
        if not self._shown:
            tell("note", "", f"With {len(self._cores)} cores, the processor is shown as a whole.")
        count = f"{len(self._cores)} core{'s' if len(self._cores) != 1 else ''}"
        total = memory.limit or memory.total
        whole = Device("cpu", f"{cores.name}, {count}", "cpu", memory_total=total)
        parts = [Device(f"core{n}", f"core {n}", "core", part_of="cpu") for n in self._shown]
        return (whole, *parts), tuple(states)

    def sample(self, edge: bool = False) -> None:
        """Sample now, and keep it for `take`. `edge`: of a span, whose table tells the memory."""
        now = self._clock()
        if self._kept and now - self._kept[-1].time < SHORT and not edge:
            return
        content = {}
        for metric, reading in self._readings.items():
            if now >= reading.due or (edge and reading.every == MEMORY and reading.due < math.inf):
                reading.due = now + reading.every
                try:
                    content[metric] = reading.read()
                except (OSError, ValueError) as fault:
                    if metric == "times":
                        raise  # without it the source is of no use
                    reading.due = math.inf
                    self._tell_fault(now, metric, fault)
        self._kept.append(Kept(now, content))

    def take(self) -> tuple[list[Row], tuple[State, ...]]:
        """The rows since the last time, and what became known."""
        kept, self._kept = self._kept, []
        rows = [self._row(one) for one in kept]
        states, self._states = tuple(self._states), []
        return rows, states

    def follow(self, pid: int) -> None:
        """From now on `process_memory` is of this process; may be called from any thread."""
        self._pid = pid
        if file := self._file(self._root / f"proc/{pid}/statm"):
            page = os.sysconf("SC_PAGE_SIZE")
            reading = Reading(file, lambda statm: int(statm.split(None, 2)[1]) * page, MEMORY)
        else:
            reading = Reading(partial(machine.process_memory, pid), float, MEMORY)
        self._readings["process_memory"] = reading

    def close(self) -> None:
        """Let the files go."""
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors, self._kept, self._readings = [], [], {}

    def _open_times(self, quota: float | None, allowed: Any, tell: Callable[..., None]) -> None:
        file = self._file(self._root / "proc/stat")
        self._readings["times"] = Reading(file or machine.core_times, core_times if file else dict)
        self._quota = quota
        if quota is None:
            return
        says = f"This container may use {quota:g} of {len(self._cores)} cores' time"
        path = allowed.cpu_stat
        if path and (file := self._file(path)):
            self._readings["used"] = Reading(file, seconds_used)
            says += ": the processor's utilisation is the share of that."
        else:
            says += ", which it shares with others: the utilisation is that of all of them."
        says += " The single cores show what all programs on this machine do."
        tell("note", "utilisation", says)

    def _open_memory(self, memory: Any, tell: Callable[..., None]) -> None:
        if memory.limit is not None:
            read = lambda: machine.limits(self._root).memory_used  # noqa: E731
            self._readings["memory"] = Reading(read, lambda used: used, LIMITED)
        elif file := self._file(self._root / "proc/meminfo"):
            self._readings["memory"] = Reading(file, memory_used, MEMORY)
        else:
            self._readings["memory"] = Reading(
                machine.read_memory, lambda memory: memory.total - memory.available, MEMORY
            )
        self.follow(self._pid)

    def _open_energy(self, tell: Callable[..., None]) -> None:
        self._packages, says = packages(self._root / "sys/class/powercap")
        if self._packages:
            self._readings["energy"] = Reading(
                lambda: [path.read_bytes() for path, _ in self._packages],
                lambda counts: [int(count) / 1e6 for count in counts],
            )
        else:
            tell("not supported", "energy", says)
            tell("not supported", "power", says)

    def _tell_fault(self, now: float, metric: str, fault: Exception) -> None:
        """Something can no longer be read; that is said once."""
        if metric == "process_memory" and not isinstance(fault, PermissionError):
            says = "The process whose memory was shown has ended."
            self._states.append(State(now, "cpu", metric, "lost", says))
            return
        says = f"It can no longer be read here ({type(fault).__name__}: {fault})."
        names = {"energy": ("energy", "power"), "used": ("utilisation",)}.get(metric, (metric,))
        self._states += [State(now, "cpu", name, "silent", says) for name in names]

    def _row(self, kept: Kept) -> Row:
        now = Kept(kept.time, {m: self._parse(m, raw) for m, raw in kept.content.items()})
        found: dict[str, float | None] = {
            metric: now.content[metric]
            for metric in ("memory", "process_memory")
            if metric in now.content
        }
        before, busy = self._before, dict[int, float]()
        passed = now.time - before.time
        if passed >= SHORT:
            self._before = now
        if SHORT <= passed < math.inf:
            busy = utilisation(
                before.content["times"] or {}, now.content["times"] or {}, self._cores
            )
            if busy:
                found["utilisation"] = round(sum(busy.values()) / len(busy), 2)
            if self._quota and "used" in before.content and "used" in now.content:
                share = (now.content["used"] - before.content["used"]) / (passed * self._quota)
                # A burst may go beyond the quota.
                found["utilisation"] = round(min(100.0, max(0.0, 100 * share)), 2)
            if "energy" in before.content and "energy" in now.content:
                found["power"] = self._add_energy(before, now)
        if "energy" in now.content:
            found["energy"] = round(self._joules, 4)
        nothing = (None,) * (len(NAMES) - 1)
        cores = [(busy.get(core), *nothing) for core in self._shown]
        return Row(kept.time, (tuple([found.get(metric) for metric in NAMES]), *cores))

    def _parse(self, metric: str, raw: Any) -> Any:
        try:
            return self._readings[metric].parse(raw)
        except (ValueError, IndexError):
            return None

    def _add_energy(self, before: Kept, now: Kept) -> float | None:
        """RAPL's counters wrap around every few minutes; the sum that is shown does not."""
        passed, grown = now.time - before.time, 0.0
        old_and_new = zip(before.content["energy"], now.content["energy"], strict=True)
        for (old, new), (_, most) in zip(old_and_new, self._packages, strict=True):
            growth = new - old if new >= old else new - old + most
            if not 0 <= growth <= POSSIBLE * passed:
                says = f"The energy counter jumped from {old:.0f} J to {new:.0f} J; it goes on."
                self._states.append(State(now.time, "cpu", "energy", "note", says))
                return None
            grown += growth
        self._joules += grown
        return round(grown / passed, 3)

    def _file(self, path: Path) -> Callable[[], bytes] | None:
        """Reads a file of the kernel's from its beginning again and again, if it is there."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        self._descriptors.append(descriptor)
        size = 4096
        while len(os.pread(descriptor, size, 0)) > size // 2:
            size *= 2
        return partial(os.pread, descriptor, size, 0)


def core_times(stat: bytes) -> Times:
    r"""Busy and all time of each core, in ticks.

    >>> core_times(b"cpu  9 9\ncpu3 10 0 5 80 5 0 0 0 7 0\nintr 1")
    {3: (15, 100)}
    """
    found: Times = {}
    end = stat.find(b"\nintr")
    for line in stat[: end if end >= 0 else None].split(b"\n")[1:]:
        if not line.startswith(b"cpu"):
            break
        # user, nice, system, idle, iowait, irq, softirq, steal; guests are in user already.
        name, *counts = line.split(None, 9)[:9]
        ticks = list(map(int, counts))
        total = sum(ticks)
        found[int(name[3:])] = (total - ticks[3] - ticks[4], total)
    return found


def utilisation(before: Times, now: Times, cores: Sequence[int]) -> dict[int, float]:
    """Per cent of each core that was there both times.

    >>> utilisation({0: (5, 10), 1: (0, 10)}, {0: (15, 30), 1: (0, 30)}, [0, 1, 2])
    {0: 50.0, 1: 0.0}
    """
    found = {}
    for core in cores:
        if core in before and core in now:
            busy, passed = (new - old for new, old in zip(now[core], before[core], strict=True))
            if passed > 0:
                found[core] = round(min(100.0, max(0.0, 100 * busy / passed)), 2)
    return found


def seconds_used(cpu_stat: bytes) -> float:
    r"""What a control group has used.

    >>> seconds_used(b"usage_usec 2500000\nuser_usec 1\n")
    2.5
    """
    return int(cpu_stat.split(None, 2)[1]) / 1e6


def memory_used(meminfo: bytes) -> float:
    r"""Bytes that are not available to a program.

    >>> memory_used(b"MemTotal: 100 kB\nMemFree: 5 kB\nMemAvailable: 60 kB\n")
    40960
    """
    total, available = (
        int(meminfo[meminfo.index(name) + len(name) :].split(None, 1)[0])
        for name in (b"MemTotal:", b"MemAvailable:")
    )
    return (total - available) * 1024


def packages(folder: Path) -> tuple[list[tuple[Path, float]], str]:
    """RAPL's counter of each socket and where it wraps (J); or none, and the sentence why not."""
    found, refused = [], False
    for zone in sorted(folder.glob("intel-rapl:*")):  # so named on AMD's processors, too
        try:
            if (zone / "name").read_text().startswith("package"):
                most = int((zone / "max_energy_range_uj").read_text()) / 1e6
                int((zone / "energy_uj").read_bytes())
                found.append((zone / "energy_uj", most))
        except PermissionError:
            refused = True
        except (OSError, ValueError):
            continue
    if refused:
        return [], (
            "Only the administrator may read the processor's energy on this machine, so its power "
            "is not shown. Ask them for the right to read energy_uj in /sys/class/powercap."
        )
    return found, (
        "This machine does not tell how much power its processor uses. "
        "Virtual machines and containers usually do not."
    )
