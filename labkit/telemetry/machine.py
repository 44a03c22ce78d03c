"""The processor and the main memory as a source: what a laptop without a GPU can show.

On Linux it reads the kernel's own files, which stay open: a look takes some tens of microseconds.
Elsewhere it asks psutil, through `labkit.hardware.machine`.

A core counts its time in steps of 10 ms, so that a look at 10 Hz tells its utilisation to about a
tenth; over a second, to a hundredth.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from math import inf
from pathlib import Path
from types import ModuleType

from labkit.telemetry import rapl, sensors
from labkit.telemetry.metrics import Device, Reading, Row, State, Why
from labkit.telemetry.processor import SHORT, CoreTimes, File, Quota, Times, core_times

__all__ = ["Host"]

SLOW = 1.0  # seconds between two looks at what changes slowly or costs much
MEMORY = 0.45  # seconds between two looks at the memory in use, while nobody watches
AGAIN = 10.0  # seconds until a gauge that failed is asked again
CORES = 64  # more cores than this are not shown one by one

Ask = Callable[[float], float | None]  # the time, and what the gauge shows; None: nothing new


class Host:
    """The processor ("cpu") and each core that may be used ("core3").

    Utilisation is the mean of the usable cores; where a container has a quota of processor time,
    the share of that quota. Memory is the machine's, or the container's where that has a limit;
    `process_memory` is the resident memory of process `pid`, without its children.

    `root` lets a test bring its own /proc and /sys.
    """

    name = "host"
    metrics: tuple[str, ...] = (
        "utilisation",
        "memory",
        "process_memory",
        "power",
        "temperature",
        "clock",
        "energy",
    )

    def __init__(
        self,
        pid: int | None = None,
        root: Path = Path("/"),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pid, self._root, self._clock = pid, root, clock
        self._files: list[File] = []
        self._gauges: dict[str, _Gauge] = {}
        self._filed: dict[str, _Gauge] = {}  # those that are told by files that can be put by
        self._shown: tuple[int, ...] = ()
        self._times: CoreTimes | None = None
        self._clocks: sensors.Clocks | None = None
        self._energy: rapl.Energy | None = None
        self._glances: list[float] = []
        self._glanced = -inf
        self._in_files = True  # all that counts is in files that can be put by

    def open(self) -> tuple[tuple[Device, ...], tuple[State, ...]]:
        """Find the gauges that this machine has; what it has not is told."""
        from labkit.hardware import machine as host

        self.close()
        allowed = host.limits(self._root)
        cores, memory = host.read_cores(allowed), host.read_memory(allowed)
        numbers = host.usable_cores(self._pid)
        self._in_files = True
        self._shown = numbers if len(numbers) <= CORES else ()
        self._times = CoreTimes(self._ask_cores(host), numbers)
        asks: dict[str, Ask] = {"utilisation": self._times.read}
        asks["memory"] = self._memory(host, memory.limit is not None)
        missing: dict[str, str] = {}
        if self._pid is None:
            missing["process_memory"] = "No process was named whose memory could be shown."
        else:
            asks["process_memory"] = self._process_memory(host, self._pid)
        counters, missing["energy"] = rapl.packages(self._root / "sys/class/powercap")
        missing["power"] = missing["energy"]
        self._energy = rapl.Energy(counters) if counters else None
        if self._energy:
            asks["energy"] = self._energy.read
        heat, missing["temperature"] = sensors.temperature(self._root)
        if heat:
            asks["temperature"] = _Slowly(heat).read
        self._clocks, missing["clock"] = sensors.clocks(self._root, self._shown or numbers[:CORES])
        if self._clocks:
            asks["clock"] = self._clocks.read
        now = self._clock()
        states = [
            State(now, "cpu", metric, "not supported", says)
            for metric, says in missing.items()
            if says
        ]
        if cores.quota is not None:
            file = allowed.cpu_stat
            note = (
                f"This container may use {cores.quota:g} cores' worth of time on "
                f"{len(numbers)} cores"
            )
            if file is not None:
                asks["utilisation"] = Quota(self._file(file), cores.quota, self._times).read
                note += ": the processor's utilisation is the share of that."
            else:
                note += ", which it shares with others: the utilisation is everybody's."
            states.append(State(now, "cpu", "utilisation", "note", note + _CORES_ARE_SHARED))
        if not self._shown:
            note = f"With {len(numbers)} cores, the processor is shown as a whole."
            states.append(State(now, "cpu", "", "note", note))
        self._gauges = {metric: _Gauge(metric, ask) for metric, ask in asks.items()}
        filed = ["utilisation", "process_memory"] + ["memory"] * (memory.limit is None)
        self._filed = {name: self._gauges[name] for name in filed if name in self._gauges}
        name = f"{cores.name}, {len(numbers)} core{'s' if len(numbers) != 1 else ''}"
        whole = Device("cpu", name, "cpu", memory_total=memory.limit or memory.total)
        parts = [Device(f"core{n}", f"core {n}", "core", part_of="cpu") for n in self._shown]
        return (whole, *parts), tuple(states)

    def glance(self, marked: bool = False) -> bool:
        """Put by what the kernel's files say now; `read` works it out. False: read now instead.
        `marked`: the memory as well, which the table of a span wants to know at its edges.
        """
        if not self._in_files or self._energy:
            return False  # not all that counts is in such files
        now = self._clock()
        # Before, no core's counter has anything to tell; but the memory has.
        if marked or now - self._glanced >= SHORT:
            self._glanced = now
            for file in self._files:
                file.keep(now, certainly=marked)
            self._glances.append(now)
        return True

    def read(self) -> Reading:
        """Look once. Each gauge may fail by itself. The rows of earlier glances come first."""
        earlier = self.recall()
        states = list(earlier.states)
        self._glanced = now = self._clock()
        row = self._row(now, self._gauges, self._clocks, states)
        return Reading((*earlier.rows, row), tuple(states))

    def recall(self) -> Reading:
        """The rows of the glances so far. What is not in files waits for the next `read`."""
        states: list[State] = []
        rows = []
        glances, self._glances = self._glances, []
        for then in glances:
            for file in self._files:
                file.recall(then)
            rows.append(self._row(then, self._filed, None, states))
        for file in self._files:
            file.forget()
        return Reading(tuple(rows), tuple(states))

    def _row(
        self,
        now: float,
        gauges: dict[str, _Gauge],
        clocks: sensors.Clocks | None,
        states: list[State],
    ) -> Row:
        if self._times:
            self._times.by_core = {}  # unless this look tells something new
        found = {metric: gauge.read(now, states) for metric, gauge in gauges.items()}
        if self._energy:
            found["power"] = self._energy.watts if found["energy"] is not None else None
            # The power is made of the energy, and goes with it.
            states += [replace(s, metric="power") for s in states if s.metric == "energy"]
        get = found.get
        values: list[tuple[float | None, ...]] = [tuple([get(metric) for metric in self.metrics])]
        busy = self._times.by_core if self._times else {}
        newest = clocks.newest if clocks else {}
        values += [
            (busy.get(core), None, None, None, None, newest.get(core), None) for core in self._shown
        ]
        return Row(now, tuple(values))

    def close(self) -> None:
        """Let the files go."""
        for file in self._files:
            file.close()
        self._files, self._glances, self._glanced = [], [], -inf

    def _file(self, path: Path, every: float = 0.0) -> File:
        file = File(path, every)
        self._files.append(file)
        return file

    def _ask_cores(self, host: ModuleType) -> Callable[[], Times]:
        with suppress(OSError, ValueError):
            file = self._file(self._root / "proc/stat")
            if core_times(file.read()):
                return lambda: core_times(file.read())
        self._in_files = False
        return lambda: dict(host.core_times())

    def _memory(self, host: ModuleType, limited: bool) -> Ask:
        if limited:
            # A container's memory takes several files to tell, and some take the kernel long.
            return _Slowly(lambda: _container_memory(host, self._root)).read
        with suppress(OSError, ValueError):
            file = self._file(self._root / "proc/meminfo", MEMORY)
            _memory_used(file.read())
            return lambda _: _memory_used(file.read()) if file.known else None

        self._in_files = False

        def used(_: float) -> float:
            memory = host.read_memory()
            return float(memory.total - memory.available)

        return used

    def _process_memory(self, host: ModuleType, pid: int) -> Ask:
        with suppress(OSError, ValueError):
            file = self._file(self._root / f"proc/{pid}/statm", MEMORY)
            page = os.sysconf("SC_PAGE_SIZE")
            int(file.read().split()[1])
            return lambda _: int(file.read().split()[1]) * page if file.known else None
        self._in_files = False
        return lambda _: float(host.process_memory(pid))


def _container_memory(host: ModuleType, root: Path) -> float:
    used = host.limits(root).memory_used
    if used is None:
        raise OSError("the container does not say what it uses")
    return float(used)


_CORES_ARE_SHARED = " The single cores show what everybody on this machine does."
_TITLES = {
    "utilisation": "The processor's utilisation",
    "memory": "The memory in use",
    "process_memory": "The memory of this process",
    "energy": "The processor's energy",
    "temperature": "The processor's temperature",
    "clock": "The processor's clock",
}


class _Gauge:
    """One metric of the processor, which may fail by itself and come back."""

    def __init__(self, metric: str, ask: Ask) -> None:
        self._metric, self._ask = metric, ask
        self._failed = False
        self._again = 0.0

    def read(self, now: float, states: list[State]) -> float | None:
        if self._failed and now < self._again:
            return None
        try:
            value = self._ask(now)
        except Exception as fault:  # noqa: BLE001 - a gauge may fail in any way, and it is told
            if not self._failed:
                why, says = self._words(fault)
                states.append(State(now, "cpu", self._metric, why, says))
            self._failed = True
            self._again = now if isinstance(fault, rapl.Jumped) else now + AGAIN
            return None
        if self._failed and value is not None:
            self._failed = False
            says = f"{_TITLES[self._metric]} can be read again."
            states.append(State(now, "cpu", self._metric, "fine", says))
        return value

    def _words(self, fault: Exception) -> tuple[Why, str]:
        title = _TITLES[self._metric]
        if isinstance(fault, rapl.Jumped):
            return "implausible", f"{title} counter cannot be right: {fault}."
        if isinstance(fault, PermissionError):
            return "refused", f"{title} may not be read here any more."
        if self._metric == "process_memory" and isinstance(fault, OSError):
            return "lost", "The process whose memory was shown has ended."
        return "silent", f"{title} cannot be read at the moment ({type(fault).__name__}: {fault})."


class _Slowly:
    """A gauge that is asked once a second only."""

    def __init__(self, ask: Callable[[], float]) -> None:
        self._ask = ask
        self._due = 0.0

    def read(self, now: float) -> float | None:
        if now < self._due:
            return None
        self._due = now + SLOW
        return self._ask()


def _memory_used(meminfo: bytes) -> float:
    r"""Bytes that are not available to a program.

    >>> _memory_used(b"MemTotal: 100 kB\nMemFree: 5 kB\nMemAvailable: 60 kB\n")
    40960
    """
    total, available = (
        int(meminfo[meminfo.index(name) + len(name) :].split(None, 1)[0])
        for name in (b"MemTotal:", b"MemAvailable:")
    )
    return (total - available) * 1024
