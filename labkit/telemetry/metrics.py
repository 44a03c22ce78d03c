"""The names and units of what is sampled, and a row of samples.

A sample is a number or None; a metric that gives no number says why with a `State`. There is no
silent zero: a GPU that does not report its power has no power in the recording, and a sentence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["METRICS", "Device", "Metric", "Row", "State", "Why"]


@dataclass(frozen=True)
class Metric:
    """One kind of sample. A counter only grows: what counts is its growth, not its value."""

    name: str
    title: str
    unit: str
    counter: bool = False


METRICS = {
    metric.name: metric
    for metric in (
        Metric("utilisation", "utilisation", "%"),  # GPU: a kernel was resident; CPU: not idle
        Metric("sm_activity", "SM activity", "%"),  # how many of the multiprocessors had work
        Metric("memory_activity", "memory traffic", "%"),  # share of time the memory was read
        Metric("memory", "memory used", "B"),
        Metric("process_memory", "process memory", "B"),
        Metric("power", "power", "W"),
        Metric("temperature", "temperature", "°C"),
        Metric("clock", "clock", "MHz"),
        Metric("pcie", "PCIe traffic", "B/s"),
        Metric("nvlink", "NVLink traffic", "B/s"),
        Metric("energy", "energy", "J", counter=True),  # the hardware's own counter
        # Computed on arrival from the samples above, so that sums survive the thinning of old rows:
        Metric("busy_seconds", "busy time", "s", counter=True),  # utilisation, summed over time
        Metric("covered_seconds", "time with known utilisation", "s", counter=True),
    )
}

# "fine" ends an earlier state. "silent": no answer at the moment. "note": for the reader only.
Why = Literal["fine", "not supported", "refused", "lost", "implausible", "silent", "note"]


@dataclass(frozen=True)
class Device:
    """Something that is sampled: a GPU, a MIG instance of one, the processor, one core of it.

    `part_of` is the key of the whole that it is a part of: a core's is "cpu". Sums leave parts out.
    """

    key: str  # "gpu0", "cpu", "core3": unique in a recording
    name: str  # "NVIDIA H200", "core 3"
    sort: Literal["gpu", "mig", "cpu", "core"]
    memory_total: float | None = None
    power_limit: float | None = None
    part_of: str | None = None

    @property
    def label(self) -> str:
        """Short enough to stand beside a strip.

        >>> Device("gpu3", "NVIDIA H200", "gpu").label, Device("cpu", "AMD EPYC", "cpu").label
        ('GPU 3', 'CPU')
        """
        number = self.key.removeprefix(self.sort)
        if self.sort == "cpu":
            return "CPU"
        if self.sort in ("gpu", "core") and number.isdigit():
            return f"{'GPU' if self.sort == 'gpu' else 'core'} {number}"
        return self.key


@dataclass(frozen=True)
class State:
    """Why a device (or one metric of it, or a whole source) gives no number, from `time` on."""

    time: float
    device: str  # key of a device, or the name of a source
    metric: str  # "" for all of it
    why: Why
    says: str  # one or two sentences for the reader: what happened, and what to do


@dataclass(frozen=True, slots=True)
class Row:
    """All samples of a source at one time: one tuple for each device, in the order of metrics."""

    time: float  # seconds on the clock of time.monotonic
    values: tuple[tuple[float | None, ...], ...]
