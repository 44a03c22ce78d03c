"""NVIDIA's GPUs as a source of samples.

Which call gives which metric is found out once, in `open`. At every sample a few calls per GPU
write into one flat buffer, which is copied and kept; `take` unpacks the copies of a batch later,
because a process that wakes ten times a second finds the processor's caches cold. What changes
slowly is read once a second, the counter of energy at the edges of spans.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from labkit.hardware import machine
from labkit.hardware.gpus import NoDriver, open_driver
from labkit.telemetry.format import values_text
from labkit.telemetry.metrics import METRICS, OWN, Device, DeviceState, Process, Processes, Why
from labkit.telemetry.nvml import (
    UNSUPPORTED,
    ErrorCode,
    Found,
    Gpm,
    NvmlCall,
    asked,
    at_edges,
    every_sample,
    once_a_second,
)

NAMES = (
    "utilisation", "sm_activity", "memory_activity", "memory", "power", "temperature", "clock",
    "energy",
)  # fmt: skip
COLUMN = {name: column for column, name in enumerate(NAMES)}
SLOW = 0.95  # seconds between two samples of what changes slowly: a tick may come a little early
ENERGY = 5.0  # seconds between two reads of the counter of energy, apart from the edges of spans
PROCESSES = 10.0  # seconds between two lists of the processes: the driver looks at each of them

# NVML's codes.
ABSENT = {2, UNSUPPORTED, 6, 13, 25, 26}  # this GPU or this driver does not have it
REFUSED = 4
LOST = {15, 16, 28}  # this GPU no longer answers
Numbers = list[float | None]


class NvmlSample(NamedTuple):
    """A sample that is not unpacked yet."""

    time: float
    slow: list[Numbers]  # for each GPU, what is not read at every sample
    content: bytes
    codes: list[int]  # what the calls returned


class NvidiaGpus:
    """All GPUs of this machine.

    >>> gpus = NvidiaGpus()                                           # doctest: +SKIP
    >>> devices, states = gpus.open()                           # doctest: +SKIP
    >>> gpus.sample()  # ten times a second                     # doctest: +SKIP
    >>> rows, states = gpus.take()  # of a batch                # doctest: +SKIP
    """

    name = "gpus"
    metrics: tuple[str, ...] = NAMES

    def __init__(self, clock: Callable[[], float] = time.monotonic, pid: int = 0) -> None:
        self._clock, self._pid = clock, pid
        self._processes: dict[str, tuple[Process, ...]] = {}
        self._processes_due = 0.0
        self._gpus: list[NvidiaGpu] = []
        self._kept: list[NvmlSample] = []
        self._states: list[DeviceState | Processes] = []
        self._faults: dict[tuple[str, str], Why] = {}  # those that began while sampling

    def open(self) -> tuple[tuple[Device, ...], tuple[DeviceState, ...]]:
        """Returns the devices, and states of what they do not report. No driver is a note."""
        now = self._clock()
        try:
            nvml = self._nvml = open_driver()
        except NoDriver as fault:
            name, says = fault.args
            whys: dict[str, Why] = {"LIBRARY_NOT_FOUND": "note", "NO_PERMISSION": "refused"}
            return (), (DeviceState(now, self.name, "", whys.get(name, "lost"), says),)
        self._gpus = [NvidiaGpu(nvml, i) for i in range(nvml.nvmlDeviceGetCount())]
        if not self._gpus:
            says = "The NVIDIA driver works, but shows no GPU here."
            return (), (DeviceState(now, self.name, "", "note", says),)
        self._layout = SampleLayout(self._gpus)
        self._slow_due, self._energy_due = now + SLOW, now
        self._latest = [gpu.first for gpu in self._gpus]
        states = [
            DeviceState(now, gpu.device.key, metric, *reason(nvml, gpu.device.label, metric, fault))
            for gpu in self._gpus
            for metric, fault in gpu.missing.items()
        ]
        return tuple(gpu.device for gpu in self._gpus), tuple(states)

    def sample(self, edge: bool = False) -> None:
        """Sample now and keep the sample for `take`, at the edge of a span with the energy."""
        now = self._clock()
        if now >= self._slow_due:
            self._slow_due = now + SLOW
            self._latest = [self._read(gpu, gpu.slow, now) for gpu in self._gpus]
        slow = self._latest
        if edge or now >= self._energy_due:
            self._energy_due = now + ENERGY
            slow = [values.copy() for values in slow]
            for gpu, values in zip(self._gpus, slow, strict=True):
                values[COLUMN["energy"]] = self._read(gpu, gpu.counters, now)[COLUMN["energy"]]
        codes = [call() for call in self._layout.calls]
        self._kept.append(NvmlSample(now, slow, bytes(self._layout.memory), codes))

    def follow(self, pid: int) -> None:
        """Watch another program from now on: process `pid` and its children."""
        self._pid, self._processes_due = pid, 0.0

    def take(self) -> tuple[list[tuple[float, str]], tuple[DeviceState | Processes, ...]]:
        """Returns the rows since the last call (`values_text`), and what became known."""
        kept, self._kept = self._kept, []
        rows = [(sample.time, values_text(self._numbers(sample))) for sample in kept]
        if self._clock() >= self._processes_due:
            self._list_processes()
        states, self._states = tuple(self._states), []
        return rows, states

    def _list_processes(self) -> None:
        """Note who uses each GPU, if that has changed."""
        now = self._clock()
        self._processes_due = now + PROCESSES
        for gpu in self._gpus:
            if isinstance(gpu.handle, ErrorCode):
                continue  # NVML would take the code for an address
            list_them = self._nvml.nvmlDeviceGetComputeRunningProcesses_v3
            running = asked(self._nvml, list_them, gpu.handle)
            found = (
                ()
                if isinstance(running, ErrorCode)
                else tuple(
                    Process(one.pid, user_of(one.pid, self._pid), one.usedGpuMemory)
                    for one in running
                )
            )
            if found != self._processes.get(gpu.device.key, ()):
                self._processes[gpu.device.key] = found
                self._states.append(Processes(now, gpu.device.key, found))

    def _numbers(self, one: NvmlSample) -> list[Numbers]:
        """Returns the numbers of each GPU. If a call has failed, only its numbers are missing."""
        items, table = self._layout.unpack(one.content), [values.copy() for values in one.slow]
        if not (self._faults or any(one.codes) or any(items[at] for at in self._layout.codes)):
            for values, readings in zip(table, self._layout.readings, strict=True):
                for column, item, milli, _, _ in readings:
                    values[column] = items[item] / 1e3 if milli else items[item]
            return table  # as nearly always; what follows costs several times as much
        for gpu, values, readings in zip(self._gpus, table, self._layout.readings, strict=True):
            answers: Found = {}
            for column, item, milli, call, place in readings:
                code = one.codes[call] or (items[place] if place is not None else 0)
                if not code:
                    values[column] = items[item] / 1e3 if milli else items[item]
                answers[NAMES[column]] = ErrorCode(code) if code else values[column]
            faults = [answer for answer in answers.values() if isinstance(answer, ErrorCode)]
            if faults and len(faults) == len(answers):
                answers = {"": faults[0]}  # the GPU itself is gone
            elif answers:
                answers[""] = None
            self._tell(one.time, gpu, answers)
        return table

    def _read(self, gpu: NvidiaGpu, readers: Sequence[NvmlCall | Gpm], now: float) -> Numbers:
        """Returns a new row with the answers, because kept samples refer to the old row."""
        numbers: Numbers = [None] * len(NAMES)
        for reader in readers:
            answers = reader.read()
            for metric, answer in answers.items():
                numbers[COLUMN[metric]] = None if isinstance(answer, ErrorCode) else answer
            # That a GPU is lost is told by the calls of every sample.
            told = {
                metric: answer
                for metric, answer in answers.items()
                if metric not in gpu.missing
                and not (isinstance(answer, ErrorCode) and answer in LOST)
            }
            self._tell(now, gpu, told)
        return numbers

    def _tell(self, now: float, gpu: NvidiaGpu, answers: Found) -> None:
        """Report once when a metric fails, and once when it can be read again."""
        for metric, answer in answers.items():
            key = (gpu.device.key, metric)
            if isinstance(answer, ErrorCode):
                why, says = reason(self._nvml, gpu.device.label, metric, answer)
                if self._faults.get(key) != why:
                    self._faults[key] = why
                    self._states.append(DeviceState(now, *key, why, says))
            elif self._faults.pop(key, None):
                says = f"{gpu.device.label} can be read again."
                self._states.append(DeviceState(now, *key, "fine", says))


class SampleLayout:
    """Where the answers of all calls of a sample lie in a flat buffer."""

    def __init__(self, gpus: Sequence[NvidiaGpu]) -> None:
        self.memory, form, items = bytearray(), "<", 0
        # For each metric of each GPU: its column, its item, whether that is in thousandths, the
        # number of its call, and the item with an error code of its own.
        self.readings: list[list[tuple[int, int, bool, int, int | None]]] = []
        places: list[tuple[NvmlCall, int]] = []
        for gpu in gpus:
            self.readings.append([])
            for call, metrics in gpu.calls:
                for metric in metrics:
                    item, milli, code = call.values[metric]
                    code = None if code is None else items + code
                    reading = COLUMN[metric], items + item, milli, len(places), code
                    self.readings[-1].append(reading)
                places.append((call, len(self.memory)))
                self.memory += call.content
                form += call.form
                items += len(struct.unpack(f"<{call.form}", call.content))
        self.codes = [code for of in self.readings for *_, code in of if code is not None]
        self.unpack = struct.Struct(form).unpack
        self.calls = [call.into(self.memory, start) for call, start in places]


class NvidiaGpu:
    """A GPU: which calls give its metrics, and which metrics it does not have."""

    def __init__(self, nvml: Any, index: int) -> None:
        handle = self.handle = asked(nvml, nvml.nvmlDeviceGetHandleByIndex, index)

        def fact(name: str) -> Any:
            ask = getattr(nvml, f"nvmlDeviceGet{name}")
            answer = handle if isinstance(handle, ErrorCode) else asked(nvml, ask, handle)
            return None if isinstance(answer, ErrorCode) else answer

        name, memory, limit = map(fact, ("Name", "MemoryInfo", "EnforcedPowerLimit"))
        self.device = Device(
            f"gpu{index}",
            name or f"GPU {index}",
            "gpu",
            float(memory.total) if memory else None,
            limit / 1e3 if limit else None,
        )
        self.calls: list[tuple[NvmlCall, list[str]]] = []
        self.missing: dict[str, ErrorCode] = {}
        self.first: Numbers = [None] * len(NAMES)  # of what changes slowly
        self.slow: list[NvmlCall | Gpm] = []
        self.counters: list[NvmlCall] = []
        if isinstance(handle, ErrorCode):
            self.missing = {"": handle}
            return
        fast, slow = every_sample(nvml, handle), once_a_second(nvml, handle)
        counters = at_edges(nvml, handle)
        gives: dict[str, NvmlCall | Gpm] = {}  # of the calls for a metric the first that answers
        for reader in (*fast, *slow, *counters):
            for metric, answer in reader.read().items():
                if isinstance(answer, ErrorCode):
                    self.missing.setdefault(metric, answer)
                else:
                    gives.setdefault(metric, reader)
                    if reader in slow:
                        self.first[COLUMN[metric]] = answer
        if not gives:
            self.missing = {"": next(iter(self.missing.values()))}
            return
        self.missing = {metric: one for metric, one in self.missing.items() if metric not in gives}
        for call in fast:
            if metrics := [metric for metric in call.values if gives.get(metric) is call]:
                self.calls.append((call, metrics))
        self.slow = [one for one in slow if one in gives.values()]
        self.counters = [counter for counter in counters if counter in gives.values()]


def user_of(pid: int, watched: int) -> str:
    """Returns OWN, or a process's login name, or "" if it has ended or is in another container."""
    name, parents = machine.user_and_parents(pid)
    return OWN if watched in (pid, *parents) else name


def reason(nvml: Any, label: str, metric: str, fault: ErrorCode) -> tuple[Why, str]:
    """Returns why a GPU or a metric of it has no number."""
    what = f"the {METRICS[metric].title} of {label}" if metric else label
    if fault == REFUSED:
        return "refused", (
            f"You have no permission to read {what}. "
            "Ask your administrator for access to the GPU's counters (/dev/nvidia*)."
        )
    if fault in LOST:
        return "lost", (
            f"{label} is lost: it no longer answers the driver. Restart the machine; if it "
            "happens again, the GPU, its power or its slot is faulty."
        )
    if fault in ABSENT and metric:
        says = f"{label} does not report its {METRICS[metric].title}."
        if metric == "sm_activity":
            says += " Data-centre GPUs from Hopper (H100) on do."
        return "not supported", says
    text = asked(nvml, nvml.nvmlErrorString, int(fault))
    return "silent", f"The driver cannot read {what}: {text}. Run nvidia-smi and see what it says."
