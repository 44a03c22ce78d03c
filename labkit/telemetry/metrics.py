"""What is read of a device, and what a reading can be.

A reading is a number or it is none; a metric that gives none says why with a `State`. There is no
silent zero: a GPU that does not report its power has no power in the recording, and a sentence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

__all__ = ["METRICS", "Device", "Glancing", "Metric", "Reading", "Row", "Source", "State", "Why"]


@dataclass(frozen=True)
class Metric:
    """One kind of reading. A counter only grows: what counts is its growth, not its value."""

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
        # Made on arrival from the readings above, so that sums survive the thinning of old samples:
        Metric("busy", "busy time", "s", counter=True),  # utilisation, summed over time
        Metric("watched", "time with known utilisation", "s", counter=True),
        Metric("joules", "energy from power", "J", counter=True),  # where there is no counter
        Metric("powered", "time with known power", "s", counter=True),
    )
}

# "fine" ends an earlier state. "silent": the source does not answer at all at the moment.
Why = Literal["fine", "not supported", "refused", "lost", "implausible", "silent", "note"]


@dataclass(frozen=True)
class Device:
    """Something with gauges: a GPU, a slice of one, the processor, one core of it.

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


@dataclass(frozen=True)
class Row:
    """All readings of a source at one time: one tuple for each device, in the order of metrics."""

    time: float  # seconds on the clock of time.monotonic
    values: tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True)
class Reading:
    """What one look at a source gave: usually one row; more where the driver had kept some."""

    rows: tuple[Row, ...]
    states: tuple[State, ...] = ()


class Source(Protocol):
    """Anything that can be looked at ten times a second.

    `open` and `read` may raise anything, and may hang: the sampler survives both and says so. What
    concerns one metric or one device only is told as a `State` instead.
    """

    name: str  # "gpus", "host"
    metrics: tuple[str, ...]  # the columns of every row

    def open(self) -> tuple[tuple[Device, ...], tuple[State, ...]]:
        """Get ready; the devices, and what is known about them from the start. May be called again
        after `close`.
        """
        ...

    def read(self) -> Reading:
        """Look once. Must be quick (well under the 100 ms between two looks)."""
        ...

    def close(self) -> None:
        """Let go. May be called twice."""
        ...


@runtime_checkable
class Glancing(Protocol):
    """A source that can also look now and work it out later, which costs a tenth."""

    def glance(self, marked: bool = False) -> bool:
        """Look now; the row comes with the next `read` or `recall`. False: read now instead.
        `marked`: at an edge of a span, at which nothing may be left out.
        """
        ...

    def recall(self) -> Reading:
        """The rows of the glances since the last `read` or `recall`, without another look."""
        ...
