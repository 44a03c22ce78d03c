"""NVIDIA's GPUs as a source of samples.

The fast path: at every sample a few calls per GPU write into one flat buffer, which is copied and
kept; `take` unpacks the copies of a batch later, because a process that wakes ten times a second
finds the processor's caches cold. What changes slowly is read once a batch, once a second at most.

The slow path: after any fault a GPU is planned again, which tries every way to read each metric
and says why a metric has none.
"""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import itemgetter
from typing import Any, NamedTuple

from labkit.hardware.gpus import BROKEN, open_driver
from labkit.kinds import bytes_text
from labkit.telemetry.metrics import METRICS, Device, Row, SourceLost, State, Why
from labkit.telemetry.nvml import (
    GPU_LOST,
    NOT_FOUND,
    REFUSED,
    UNSUPPORTED,
    Buffered,
    Call,
    Fault,
    Found,
    Processes,
    asked,
    ways_to_read,
)

__all__ = ["Gpus"]

NAMES = (
    "utilisation",
    "sm_activity",
    "memory_activity",
    "memory",
    "process_memory",
    "power",
    "temperature",
    "clock",
    "pcie",
    "nvlink",
    "energy",
)
COLUMN = {name: column for column, name in enumerate(NAMES)}
SLOW = 0.95  # seconds between two samples of what changes slowly (a tick may come a little early)
RETRY = 0.25  # seconds after a fault until its GPU is planned again
REPLAN = {"lost": 5.0, "silent": 10.0}  # seconds until another plan, by what is missing; else:
REPLAN_ABSENT = 60.0
SET_BACK = 3.0  # seconds after which an energy counter that fell goes on from where it was

ABSENT = {2, 3, 6, 13, 25, 26}  # NVML's codes: this GPU or this driver does not have it
LOST = {GPU_LOST, 16, 28}  # this GPU no longer answers
DOWN = {1: "", 9: "DRIVER_NOT_LOADED", 12: "", 18: "LIB_RM_VERSION_MISMATCH"}  # no GPU answers
ERRORS = {
    10: "it gave no answer in time",
    17: "the operating system refused",
    20: "the driver had no memory for it",
    27: "it is not ready",
    999: "an unknown error",
}
Numbers = list[float | None]


class Kept(NamedTuple):
    """One sample that is not unpacked yet."""

    time: float
    layout: Layout
    slow: list[Numbers]  # of each GPU, the latest values of what changes slowly
    content: bytes
    codes: list[int] | None  # None: all were 0


class Gpus:
    """All GPUs of this machine. `pid`: whose memory is looked for on them.

    >>> gpus = Gpus(os.getpid())                                # doctest: +SKIP
    >>> devices, states = gpus.open()                           # doctest: +SKIP
    >>> gpus.sample()  # ten times a second                     # doctest: +SKIP
    >>> rows, states = gpus.take()  # twice a second            # doctest: +SKIP
    """

    name = "gpus"
    metrics: tuple[str, ...] = NAMES

    def __init__(
        self,
        pid: int,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._pid, self._clock, self._wall = pid, clock, wall
        self._nvml: Any = None
        self._gpus: list[Gpu] = []
        self._kept: list[Kept] = []
        self._states: list[State] = []
        self._holding: dict[tuple[str, str], Why] = {}
        self._slow_due = self._plan_due = -math.inf

    def open(self) -> tuple[tuple[Device, ...], tuple[State, ...]]:
        """The devices and what they do not tell. No driver at all is a note."""
        self.close()
        before = {gpu.device.key: gpu.energy for gpu in self._gpus}
        now = self._clock()
        opened = open_driver()
        if opened.pynvml is None:
            if opened.fault in ("LIBRARY_NOT_FOUND", "MISSING"):
                return (), (State(now, self.name, "", "note", opened.says),)
            raise SourceLost("refused" if opened.fault == "NO_PERMISSION" else "lost", opened.says)
        nvml = self._nvml = opened.pynvml
        count = asked(nvml, nvml.nvmlDeviceGetCount)
        if isinstance(count, Fault):
            raise SourceLost("lost", down_says(count.code))
        self._gpus = [Gpu(nvml, index, self._pid, self._wall) for index in range(count)]
        if not self._gpus:
            says = "The NVIDIA driver works, but shows no GPU here."
            return (), (State(now, self.name, "", "note", says),)
        for gpu in self._gpus:
            gpu.energy = before.get(gpu.device.key, -math.inf)
            self._plan(gpu, now)
        self._arrange(now)
        return tuple(gpu.device for gpu in self._gpus), self._new_states()

    def sample(self, edge: bool = False) -> None:
        """Sample now, and keep it for `take`. `edge` makes no difference to a GPU."""
        now = self._clock()
        if now >= self._plan_due:
            for gpu in self._gpus:
                if now >= gpu.plan_due:
                    self._plan(gpu, now)
            self._arrange(now)
        elif now >= self._slow_due and not self._kept:  # once a batch is enough
            self._sample_slow(now)
        layout = self._layout
        codes = [call() for call in layout.calls]
        failed = any(codes)
        content = bytes(layout.memory)
        self._kept.append(Kept(now, layout, self._slow, content, codes if failed else None))
        if failed:
            for code, (gpu, *_) in zip(codes, layout.parts, strict=True):
                if code:
                    self._failed(gpu, code, now)

    def take(self) -> tuple[list[Row], tuple[State, ...]]:
        """The rows since the last time, and what became known."""
        kept, self._kept = self._kept, []
        points = [gpu.buffered.points(self._clock()) if gpu.buffered else [] for gpu in self._gpus]
        rows = []
        for one in kept:
            table = [values.copy() for values in one.slow]
            items = one.layout.unpack(one.content)
            if one.codes is None and one.layout.constant(items) == one.layout.usual:
                for values, numbers in zip(table, one.layout.numbers, strict=True):
                    for column, item, divisor in numbers:
                        values[column] = items[item] / divisor if divisor else items[item]
            else:
                self._unpack_each(one, table)
            for gpu, values, buffered in zip(self._gpus, table, points, strict=True):
                if gpu.buffered and values[0] is not None:
                    values[0] = gpu.buffered.mean_until(one.time, buffered, values[0])
                self._check(gpu, values, one.time)
            rows.append(Row(one.time, tuple([tuple(values) for values in table])))
        return rows, self._new_states()

    def follow(self, pid: int) -> None:
        """From now on `process_memory` is of this process; may be called from any thread."""
        self._pid = pid
        for gpu in self._gpus:
            gpu.follow(pid)

    def close(self) -> None:
        """Let the driver go."""
        for gpu in self._gpus:
            gpu.close()
        nvml, self._nvml, self._kept = self._nvml, None, []
        if nvml is not None:
            with suppress(nvml.NVMLError):
                nvml.nvmlShutdown()

    def _sample_slow(self, now: float) -> None:
        self._slow_due = now + SLOW
        self._slow = []
        for gpu in self._gpus:
            values: Numbers = [None] * len(NAMES)
            for call, metrics in gpu.slow:
                for metric, found in call.read(now).items():
                    if metric not in metrics:
                        continue
                    if isinstance(found, Fault):
                        self._failed(gpu, found.code, now)
                    else:
                        values[COLUMN[metric]] = found
            self._slow.append(values)

    def _failed(self, gpu: Gpu, code: int, now: float) -> None:
        """A call failed: its GPU is planned again, at the next sample where no call will do."""
        gone = code in LOST or code in DOWN
        self._plan_again(gpu, now if gone else now + RETRY)

    def _plan_again(self, gpu: Gpu, due: float) -> None:
        gpu.plan_due = min(gpu.plan_due, due)
        self._plan_due = min(self._plan_due, due)

    def _plan(self, gpu: Gpu, now: float) -> None:
        """Find what the GPU tells, and say what it does not."""
        problems = gpu.plan(self._nvml, now)
        for metric in ("", *NAMES):
            why, says = problems.get(metric, ("fine", ""))
            held = self._holding.get((gpu.device.key, metric))
            if why != "fine":
                self._tell(now, gpu, metric, why, says)
            elif held not in (None, "implausible") and ("" not in problems or not metric):
                self._tell(now, gpu, metric, "fine", f"{gpu.label} can be read again.")
        waits = [REPLAN.get(why, REPLAN_ABSENT) for why, _ in problems.values()]
        gpu.plan_due = now + min(waits) if waits else math.inf

    def _arrange(self, now: float) -> None:
        """One flat buffer for the calls of all GPUs."""
        self._layout = Layout(self._gpus)
        self._plan_due = min(gpu.plan_due for gpu in self._gpus)
        self._sample_slow(now)

    def _unpack_each(self, one: Kept, table: list[Numbers]) -> None:
        """Something is unusual: unpack call by call, so that only what failed is missing."""
        codes = one.codes or [0] * len(one.layout.parts)
        for code, (gpu, call, metrics, start, end) in zip(codes, one.layout.parts, strict=True):
            found = {} if code else call.unpack(one.content[start:end])
            values = table[gpu.index]
            for metric in metrics:
                number = found.get(metric)
                if isinstance(number, Fault):
                    self._failed(gpu, number.code, one.time)
                else:
                    values[COLUMN[metric]] = number

    def _check(self, gpu: Gpu, values: Numbers, now: float) -> None:
        """What cannot be true is not shown."""
        column = COLUMN["energy"]
        energy = values[column]
        if energy is not None:
            energy = values[column] = energy + gpu.energy_offset
        for column, low, high in gpu.limits:
            value = values[column]
            if value is not None and not low <= value <= high:
                values[column] = None
                self._tell(now, gpu, NAMES[column], "implausible", gpu.implausible(column, value))
        if energy is not None and not energy >= gpu.energy:
            values[COLUMN["energy"]] = None
            says = (
                f"The energy counter of {gpu.label} fell from {gpu.energy:.0f} to {energy:.0f} J."
            )
            self._tell(now, gpu, "energy", "implausible", says)
            self._plan_again(gpu, now + SET_BACK)
        elif energy is not None:
            gpu.energy = energy
        if "implausible" in self._holding.values():
            for metric, column in COLUMN.items():
                held = self._holding.get((gpu.device.key, metric))
                if held == "implausible" and values[column] is not None:
                    says = f"The {METRICS[metric].title} of {gpu.label} is plausible again."
                    self._tell(now, gpu, metric, "fine", says)

    def _tell(self, now: float, gpu: Gpu, metric: str, why: Why, says: str) -> None:
        """Each state once, and its end."""
        key = (gpu.device.key, metric)
        if self._holding.get(key, "fine") != why:
            self._holding[key] = why
            self._states.append(State(now, *key, why, says))
            if why == "fine":
                del self._holding[key]

    def _new_states(self) -> tuple[State, ...]:
        new, self._states = tuple(self._states), []
        return new


class Layout:
    """Where the answers of all fast calls lie in one flat buffer."""

    def __init__(self, gpus: Sequence[Gpu]) -> None:
        self.parts: list[tuple[Gpu, Call, set[str], int, int]] = []
        self.numbers: list[list[tuple[int, int, float]]] = []  # column, item, divisor
        self.memory = bytearray()
        form, items, constant = "<", 0, list[int]()
        for gpu in gpus:
            numbers: list[tuple[int, int, float]] = []
            self.numbers.append(numbers)
            for call, metrics in gpu.fast.items():
                start = len(self.memory)
                self.memory += bytes(call.buffer)
                self.parts.append((gpu, call, metrics, start, len(self.memory)))
                for metric in metrics:
                    item, divisor = call.values[metric]
                    numbers.append((COLUMN[metric], items + item, divisor))
                constant += [items + item for item in call.constant]
                form += call.form
                items += call.items
        self.unpack = struct.Struct(form).unpack
        self.constant: Callable[[Any], Any] = itemgetter(*constant) if constant else lambda _: None
        self.usual = self.constant(self.unpack(self.memory))
        self.calls = [call.into(self.memory, start) for _, call, _, start, _ in self.parts]


class Gpu:
    """One GPU: which calls give its metrics."""

    def __init__(self, nvml: Any, index: int, pid: int, wall: Callable[[], float]) -> None:
        self.index, self.label = index, f"GPU {index}"
        self._pid, self._wall = pid, wall
        handle = asked(nvml, nvml.nvmlDeviceGetHandleByIndex, index)
        facts: dict[str, Any] = {}
        for name in ("Name", "UUID", "MigMode", "MemoryInfo", "EnforcedPowerLimit"):
            ask = getattr(nvml, f"nvmlDeviceGet{name}")
            answer = handle if isinstance(handle, Fault) else asked(nvml, ask, handle)
            facts[name] = None if isinstance(answer, Fault) else answer
        self._uuid = facts["UUID"]
        self._mig = bool(facts["MigMode"] and facts["MigMode"][0])
        total = float(facts["MemoryInfo"].total) if facts["MemoryInfo"] else 0.0
        limit = facts["EnforcedPowerLimit"] / 1e3 if facts["EnforcedPowerLimit"] else 0.0
        name = facts["Name"] or self.label
        self.device = Device(f"gpu{index}", name, "gpu", total or None, limit or None)
        self.limits = [
            (COLUMN["utilisation"], 0, 100),
            (COLUMN["sm_activity"], 0, 100.5),
            (COLUMN["memory_activity"], 0, 100),
            (COLUMN["memory"], 0, total or math.inf),
            (COLUMN["temperature"], 1, 150),
            (COLUMN["power"], 0, 2 * limit or math.inf),
            (COLUMN["pcie"], 0, 1e13),
            (COLUMN["nvlink"], 0, 1e13),
        ]
        self.energy, self.energy_offset = -math.inf, 0.0
        self.fast: dict[Call, set[str]] = {}
        self.slow: list[tuple[Any, set[str]]] = []
        self.buffered: Buffered | None = None
        self.plan_due = math.inf
        self._ways: list[Any] = []

    def plan(self, nvml: Any, now: float) -> dict[str, tuple[Why, str]]:
        """Choose for each metric the first call that answers; why those without one have none."""
        self.fast, self.slow = {}, []
        code = 0 if self._ways else self._find(nvml)
        chosen: dict[str, Any] = {}
        faults: dict[str, Fault] = {}
        for way in () if code else self._ways:
            code = code or self._try(way, now, chosen, faults)
        if code in DOWN:
            raise SourceLost("lost", down_says(code))
        if code:
            self.close()
            return {"": lost_says(self.label, code)}
        for way in self._ways:
            metrics = {metric for metric, by in chosen.items() if by is way}
            if metrics and isinstance(way, Call) and way.every_sample:
                self.fast[way] = metrics
            elif metrics:
                self.slow.append((way, metrics))
        return {
            metric: missing_says(
                self.label, metric, faults.get(metric, Fault(UNSUPPORTED)), mig=self._mig
            )
            for metric in NAMES
            if metric not in chosen
        }

    def _try(self, way: Any, now: float, chosen: dict[str, Any], faults: dict[str, Fault]) -> int:
        """Choose this way for what no other gives; NVML's code where the GPU itself is lost."""
        wanted = [metric for metric in way.metrics if metric not in chosen]
        found: Found = way.read(now) if wanted else {}
        for metric in wanted:
            answer = found[metric]
            if not isinstance(answer, Fault):
                chosen[metric] = way
                if metric == "energy" and answer is not None:
                    self._count_on(answer)
            elif answer.code in LOST or answer.code in DOWN:
                return answer.code
            elif metric not in faults or answer.says or answer.code == REFUSED:
                faults[metric] = answer
        return 0

    def follow(self, pid: int) -> None:
        """Look for the memory of this process."""
        self._pid = pid
        for way in self._ways:
            if isinstance(way, Processes):
                way.pid = pid

    def close(self) -> None:
        """Give back what NVML has lent."""
        for way in self._ways:
            way.close()
        self._ways, self.buffered = [], None
        self.fast, self.slow = {}, []

    def implausible(self, column: int, value: float) -> str:
        """The sentence about a number that cannot be true."""
        name = NAMES[column]
        if name == "memory":
            total = bytes_text(self.device.memory_total or 0)
            return f"{self.label} says that {bytes_text(value)} of its {total} memory are in use."
        metric = METRICS[name]
        return (
            f"{self.label} reports {value:.4g} {metric.unit} {metric.title}, which cannot be true."
        )

    def _count_on(self, counter: float) -> None:
        """An energy counter that was set back, as by a reload of the driver, goes on."""
        if counter + self.energy_offset < self.energy:
            self.energy_offset = self.energy - counter

    def _find(self, nvml: Any) -> int:
        """A handle, and all ways to read each metric; from the best to the last."""
        handle: Any = Fault(NOT_FOUND)
        # When a GPU falls off the bus the others may be numbered anew; the UUID stays.
        if self._uuid is not None:
            handle = asked(nvml, nvml.nvmlDeviceGetHandleByUUID, self._uuid)
            if isinstance(handle, Fault) and handle.code == NOT_FOUND:
                handle = Fault(GPU_LOST)
        if isinstance(handle, Fault) and (self._uuid is None or handle.code == 13):
            handle = asked(nvml, nvml.nvmlDeviceGetHandleByIndex, self.index)
        if isinstance(handle, Fault):
            return handle.code
        self._ways = ways_to_read(nvml, handle, self._pid)
        buffered = Buffered(nvml, handle, self._wall)
        self.buffered = buffered if buffered.is_fine() else None
        return 0


# --- what is said of faults


def down_says(code: int) -> str:
    """Why no GPU gives anything."""
    return BROKEN.get(DOWN.get(code, ""), "") or (
        "The NVIDIA driver has stopped answering, which happens when it is reloaded. "
        "It is opened again from time to time."
    )


def lost_says(label: str, code: int) -> tuple[Why, str]:
    """Why a GPU gives nothing at all."""
    if code == REFUSED:
        return "refused", (
            f"You have no permission to read {label}. "
            "Ask your administrator for access to it (/dev/nvidia*)."
        )
    if code == 16:
        return "lost", f"{label} has failed and must be reset. Ask your administrator to reset it."
    if code in LOST:
        return "lost", (
            f"{label} is lost: it no longer answers the driver. Restart the machine; if it "
            "happens again, the GPU, its power or its slot is faulty."
        )
    reason = ERRORS.get(code, f"NVML's error {code}")
    return "silent", f"{label} cannot be read: {reason}. Run nvidia-smi and see what it says."


def missing_says(label: str, metric: str, fault: Fault, *, mig: bool) -> tuple[Why, str]:
    """Why a metric has no number."""
    title = METRICS[metric].title
    if fault.code == REFUSED:
        return "refused", (
            f"You have no permission to read the {title} of {label}. "
            "Ask your administrator for access to the GPU's counters."
        )
    if fault.code not in ABSENT:
        reason = ERRORS.get(fault.code, f"NVML's error {fault.code}")
        return "silent", f"{label} does not give its {title} at the moment: {reason}."
    if mig:
        says = f"{label} is cut into instances with MIG; NVML then gives no {title} of the whole."
    else:
        says = fault.says or _ABSENT_SAYS.get(metric, "{label} does not report its {title}.")
    return "not supported", says.format(label=label, title=title)


_ABSENT_SAYS = {
    "memory": (
        "{label} counts no memory of its own: its GPU and CPU share one memory (GB10, Jetson). "
        "See the memory of the machine instead."
    ),
    "sm_activity": (
        "{label} does not count how many of its multiprocessors work. "
        "Data-centre GPUs from Hopper (H100) on do."
    ),
    "pcie": "{label} does not count its PCIe traffic. Data-centre GPUs from Hopper (H100) on do.",
    "nvlink": "{label} has no NVLink in use, or does not count its traffic.",
    "process_memory": "{label} does not tell which process uses its memory.",
}
