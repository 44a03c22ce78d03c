"""NVIDIA's GPUs as a source of samples.

Which call gives which metric is found out once, in `open`. At every sample a few calls per GPU
write into one flat buffer, which is copied and kept; `take` unpacks the copies of a batch later,
because a process that wakes ten times a second finds the processor's caches cold. What changes
slowly is read once a second.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import itemgetter
from typing import Any, NamedTuple

from labkit.hardware.gpus import open_driver
from labkit.telemetry.metrics import METRICS, Device, Row, State, Why
from labkit.telemetry.nvml import (
    UNSUPPORTED,
    Call,
    Fault,
    Found,
    Gpm,
    Processes,
    asked,
    every_sample,
    once_a_second,
)

__all__ = ["Gpus"]

NAMES = (
    "utilisation", "sm_activity", "memory_activity", "memory", "process_memory", "power",
    "temperature", "clock", "pcie", "nvlink", "energy",
)  # fmt: skip
COLUMN = {name: column for column, name in enumerate(NAMES)}
SLOW = 0.95  # seconds between two samples of what changes slowly (a tick may come a little early)

# NVML's codes.
ABSENT = {2, UNSUPPORTED, 6, 13, 25, 26}  # this GPU or this driver does not have it
REFUSED = 4
LOST = {15, 16, 28}  # this GPU no longer answers
Numbers = list[float | None]


class Kept(NamedTuple):
    """One sample that is not unpacked yet."""

    time: float
    slow: list[Numbers]  # of each GPU, the latest values of what changes slowly
    content: bytes
    codes: list[int]  # what the calls returned


class Gpus:
    """All GPUs of this machine. `pid`: whose memory is looked for on them.

    >>> gpus = Gpus(os.getpid())                                # doctest: +SKIP
    >>> devices, states = gpus.open()                           # doctest: +SKIP
    >>> gpus.sample()  # ten times a second                     # doctest: +SKIP
    >>> rows, states = gpus.take()  # twice a second            # doctest: +SKIP
    """

    name = "gpus"
    metrics: tuple[str, ...] = NAMES

    def __init__(self, pid: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._pid, self._clock = pid, clock
        self._nvml: Any = None
        self._gpus: list[Gpu] = []
        self._kept: list[Kept] = []
        self._states: list[State] = []
        self._faults: dict[tuple[str, str], Why] = {}  # those that began while sampling
        self._failing = False  # a call of the last sample has failed

    def open(self) -> tuple[tuple[Device, ...], tuple[State, ...]]:
        """The devices and what they do not tell. No driver at all is a note."""
        self.close()
        now = self._clock()
        opened = open_driver()
        if opened.pynvml is None:
            whys: dict[str, Why] = {"LIBRARY_NOT_FOUND": "note", "NO_PERMISSION": "refused"}
            return (), (State(now, self.name, "", whys.get(opened.fault, "lost"), opened.says),)
        nvml = self._nvml = opened.pynvml
        count = nvml.nvmlDeviceGetCount()
        if not count:
            says = "The NVIDIA driver works, but shows no GPU here."
            return (), (State(now, self.name, "", "note", says),)
        self._gpus = [Gpu(nvml, index, self._pid) for index in range(count)]
        self._layout = Layout(self._gpus)
        self._slow_due = now + SLOW
        states = [
            State(now, gpu.device.key, metric, *reason(nvml, gpu.label, metric, fault, gpu.mig))
            for gpu in self._gpus
            for metric, fault in gpu.missing.items()
        ]
        return tuple(gpu.device for gpu in self._gpus), tuple(states)

    def sample(self, edge: bool = False) -> None:
        """Sample now, and keep it for `take`. `edge` makes no difference to a GPU."""
        now = self._clock()
        if now >= self._slow_due:
            self._slow_due = now + SLOW
            for gpu in self._gpus:
                self._tell(now, gpu, gpu.read_slow())
        codes = [call() for call in self._layout.calls]
        content = bytes(self._layout.memory)
        self._kept.append(Kept(now, [gpu.slow_values for gpu in self._gpus], content, codes))

    def take(self) -> tuple[list[Row], tuple[State, ...]]:
        """The rows since the last time, and what became known."""
        kept, self._kept = self._kept, []
        rows = []
        for one in kept:
            table = [values.copy() for values in one.slow]
            items = self._layout.unpack(one.content)
            failing = any(one.codes) or any(self._layout.codes(items))
            if failing or self._failing:
                self._failing = failing
                self._unpack_each(one, items, table)
            else:
                for values, numbers in zip(table, self._layout.numbers, strict=True):
                    for column, item, divisor in numbers:
                        values[column] = items[item] / divisor if divisor else items[item]
            rows.append(Row(one.time, tuple([tuple(values) for values in table])))
        states, self._states = tuple(self._states), []
        return rows, states

    def follow(self, pid: int) -> None:
        """From now on `process_memory` is of this process; may be called from any thread."""
        self._pid = pid
        for gpu in self._gpus:
            gpu.processes.pid = pid

    def close(self) -> None:
        """Let the driver go."""
        for gpu in self._gpus:
            gpu.close()
        nvml, self._nvml, self._gpus, self._kept = self._nvml, None, [], []
        self._faults = {}
        if nvml is not None:
            with suppress(nvml.NVMLError):
                nvml.nvmlShutdown()

    def _unpack_each(self, one: Kept, items: tuple[Any, ...], table: list[Numbers]) -> None:
        """A call has failed: unpack call by call, so that only what failed is missing."""
        codes = iter(one.codes)
        for gpu, values, parts in zip(self._gpus, table, self._layout.parts, strict=True):
            answers: Found = {}
            for call, metrics, first, last in parts:
                code = next(codes)
                found = {} if code else call.found(items[first:last])
                answers |= {metric: found.get(metric, Fault(code)) for metric in metrics}
            for metric, answer in answers.items():
                values[COLUMN[metric]] = None if isinstance(answer, Fault) else answer
            faults = [answer for answer in answers.values() if isinstance(answer, Fault)]
            if faults and len(faults) == len(answers):
                answers = {"": faults[0]}  # the GPU itself is gone
            elif answers:
                answers[""] = None
            self._tell(one.time, gpu, answers)

    def _tell(self, now: float, gpu: Gpu, answers: Found) -> None:
        """Say of each metric when it fails, and when it can be read again; once each."""
        for metric, answer in answers.items():
            key = (gpu.device.key, metric)
            if isinstance(answer, Fault):
                why, says = reason(self._nvml, gpu.label, metric, answer, gpu.mig)
                if self._faults.get(key) != why:
                    self._faults[key] = why
                    self._states.append(State(now, *key, why, says))
            elif self._faults.pop(key, None):
                self._states.append(State(now, *key, "fine", f"{gpu.label} can be read again."))


class Layout:
    """Where the answers of all calls of a sample lie in one flat buffer."""

    def __init__(self, gpus: Sequence[Gpu]) -> None:
        # Of each GPU: its calls, with the metrics used and the range of items; and, for the usual
        # case that nothing fails, column, item and divisor of each metric.
        self.parts: list[list[tuple[Call, list[str], int, int]]] = []
        self.numbers: list[list[tuple[int, int, float]]] = []
        self.memory, self.calls = bytearray(), []
        starts: list[tuple[Call, int]] = []
        form, first, codes = "<", 0, list[int]()
        for gpu in gpus:
            self.parts.append([])
            self.numbers.append([])
            for call, metrics in gpu.calls:
                last = first + len(struct.unpack(f"<{call.form}", call.buffer))
                self.parts[-1].append((call, metrics, first, last))
                for metric in metrics:
                    item, divisor, code = call.values[metric]
                    self.numbers[-1].append((COLUMN[metric], first + item, divisor))
                    codes += [] if code is None else [first + code]
                starts.append((call, len(self.memory)))
                self.memory += bytes(call.buffer)
                form += call.form
                first = last
        self.unpack = struct.Struct(form).unpack
        # The items that are error codes, one of them twice: of a single one it gives no tuple.
        self.codes: Callable[[Any], Any] = itemgetter(*codes, codes[0]) if codes else lambda _: ()
        self.calls = [call.into(self.memory, start) for call, start in starts]


class Gpu:
    """One GPU: which calls give its metrics, and which metrics it does not have."""

    def __init__(self, nvml: Any, index: int, pid: int) -> None:
        self.label = f"GPU {index}"
        handle = asked(nvml, nvml.nvmlDeviceGetHandleByIndex, index)
        facts: dict[str, Any] = {}
        for name in ("Name", "MigMode", "MemoryInfo", "EnforcedPowerLimit"):
            ask = getattr(nvml, f"nvmlDeviceGet{name}")
            answer = handle if isinstance(handle, Fault) else asked(nvml, ask, handle)
            facts[name] = None if isinstance(answer, Fault) else answer
        self.mig = bool(facts["MigMode"] and facts["MigMode"][0])
        self.device = Device(
            f"gpu{index}",
            facts["Name"] or self.label,
            "gpu",
            float(facts["MemoryInfo"].total) if facts["MemoryInfo"] else None,
            facts["EnforcedPowerLimit"] / 1e3 if facts["EnforcedPowerLimit"] else None,
        )
        self.processes = Processes(nvml, handle, pid)
        self.calls: list[tuple[Call, list[str]]] = []
        self.missing: dict[str, Fault] = {}
        self.slow_values: Numbers = [None] * len(NAMES)
        self._slow: list[Call | Gpm | Processes] = []
        if isinstance(handle, Fault):
            self.missing = {"": handle}
            return
        fast, slow = every_sample(nvml, handle), once_a_second(nvml, handle)
        gives: dict[str, Call | Gpm] = {}  # of the calls for one metric the first that answers
        answers = [
            *((call, call.read()) for call in fast),
            *((one, self._read(one)) for one in slow),
        ]
        for call, found in answers:
            for metric, answer in found.items():
                if isinstance(answer, Fault):
                    self.missing.setdefault(metric, answer)
                else:
                    gives.setdefault(metric, call)
        if not gives:
            self.missing = {"": next(iter(self.missing.values()))}
            return
        self.missing = {metric: one for metric, one in self.missing.items() if metric not in gives}
        for call in fast:
            if metrics := [metric for metric in call.values if gives.get(metric) is call]:
                self.calls.append((call, metrics))
        # A process that is not listed yet may be listed later.
        self._slow = [*(one for one in slow if one in gives.values()), self.processes]

    def read_slow(self) -> Found:
        """Read what changes slowly: the answers. The numbers go to `slow_values`."""
        answers: Found = {}
        for way in self._slow:
            answers |= self._read(way)
        # That a GPU is lost is told by the calls of every sample.
        return {
            metric: answer
            for metric, answer in answers.items()
            if metric not in self.missing and getattr(answer, "code", None) not in LOST
        }

    def close(self) -> None:
        """Give back what NVML has lent."""
        for way in self._slow:
            if isinstance(way, Gpm):
                way.close()

    def _read(self, way: Call | Gpm | Processes) -> Found:
        answers = way.read()
        self.slow_values = self.slow_values.copy()  # samples that were kept have the old ones
        for metric, answer in answers.items():
            self.slow_values[COLUMN[metric]] = None if isinstance(answer, Fault) else answer
        return answers


def reason(nvml: Any, label: str, metric: str, fault: Fault, mig: bool = False) -> tuple[Why, str]:
    """Why a GPU, or one metric of it, has no number."""
    what = f"the {METRICS[metric].title} of {label}" if metric else label
    if fault.says:
        return "silent", fault.says.format(label=label)
    if fault.code == REFUSED:
        return "refused", (
            f"You have no permission to read {what}. "
            "Ask your administrator for access to the GPU's counters (/dev/nvidia*)."
        )
    if fault.code in LOST:
        return "lost", (
            f"{label} is lost: it no longer answers the driver. Restart the machine; if it "
            "happens again, the GPU, its power or its slot is faulty."
        )
    if fault.code in ABSENT and metric:
        says = f"{label} does not report its {METRICS[metric].title}."
        if mig:
            says += " It is cut into instances with MIG; NVML then gives less of the whole."
        elif metric in Gpm.values:
            says += " Data-centre GPUs from Hopper (H100) on do."
        return "not supported", says
    text = asked(nvml, nvml.nvmlErrorString, fault.code)
    return "silent", f"The driver cannot read {what}: {text}. Run nvidia-smi and see what it says."
