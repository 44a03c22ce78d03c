"""The metrics, and what they are sampled of.

A sample is a number or None. Where a metric gives no number, a `DeviceState` says why: a GPU that
does not report its power has no power in the recording, never 0 W, and a sentence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple


class Metric(NamedTuple):
    """What is sampled, and how the panel shows it. A metric without colours is not shown."""

    title: str
    unit: str
    colours: tuple[str, str] | None = None  # on light, on dark
    most: float | str | None = None  # at the top of its lane: a number, or the device's field
    usual: bool = False  # shown before the reader has chosen


METRICS = {
    # GPU: share of time in which a kernel was resident; CPU: not idle
    "utilisation": Metric("utilisation", "%", ("#0072b2", "#56b4e9"), 100, usual=True),
    # how many of the multiprocessors had work
    "sm_activity": Metric("SM activity", "%", ("#00855f", "#2fc79a"), 100),
    # share of time in which the memory was read or written
    "memory_activity": Metric("memory traffic", "%", ("#7a6a00", "#d8cb4a"), 100),
    "memory": Metric("memory", "B", ("#b06f00", "#e69f00"), "memory_total", usual=True),
    "process_memory": Metric("process memory", "B", ("#8a5a12", "#d0a35c")),  # main memory
    "power": Metric("power", "W", ("#c44e00", "#f2813a"), "power_limit", usual=True),
    "temperature": Metric("temperature", "°C", ("#a84680", "#dd8fb9")),
    "clock": Metric("clock", "MHz", ("#5b6470", "#a4adb8")),
    "energy": Metric("energy", "J"),  # the hardware's own counter
}

# "fine" ends an earlier state, "silent" is no answer at the moment, "note" is for the reader only.
Why = Literal["fine", "not supported", "refused", "lost", "silent", "note"]


@dataclass(frozen=True)
class Device:
    """Something that is sampled: a GPU, the processor, or a core, which is `part_of` "cpu"."""

    key: str  # "gpu0", "cpu", "core3": unique in a recording
    name: str  # "NVIDIA H200", "core 3"
    sort: Literal["gpu", "cpu", "core"]
    memory_total: float | None = None
    power_limit: float | None = None
    part_of: str | None = None
    of: str = ""  # its recording, where several are shown together

    @property
    def label(self) -> str:
        """A name that is short enough to stand beside a strip.

        >>> Device("gpu3", "NVIDIA H200", "gpu").label, Device("cpu", "AMD EPYC", "cpu").label
        ('GPU 3', 'CPU')
        """
        number = self.key.rpartition("/")[2].removeprefix(self.sort)
        label = {"gpu": f"GPU {number}", "core": f"core {number}"}.get(self.sort, "CPU")
        return f"{self.of} · {label}" if self.of else label


@dataclass(frozen=True)
class DeviceState:
    """Why a device, a metric of it or a whole source gives no number, from `time` on."""

    time: float
    device: str  # key of a device, or the name of a source
    metric: str  # "" for all of it
    why: Why
    says: str  # one or two sentences for the reader: what happened, and what to do


@dataclass(frozen=True)
class Process:
    """A program that has memory on a GPU."""

    pid: int
    user: str  # OWN, a login name, or "" where it cannot be known
    memory: float | None = None


OWN = "this program"  # what is watched, with its children


@dataclass(frozen=True)
class Processes:
    """Who uses a GPU, from `time` on."""

    time: float
    device: str
    found: tuple[Process, ...]
