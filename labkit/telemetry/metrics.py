"""The metrics, and what they are sampled of.

A sample is a number or None; a metric that gives no number says why with a `State`. There is no
silent zero: a GPU that does not report its power has no power in the recording, and a sentence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

METRICS = {
    "utilisation": "utilisation",  # %; GPU: a kernel was resident; CPU: not idle
    "sm_activity": "SM activity",  # %; how many of the multiprocessors had work
    "memory_activity": "memory traffic",  # %; share of time in which the memory was read or written
    "memory": "memory used",  # bytes
    "process_memory": "process memory",  # bytes of main memory
    "power": "power",  # W
    "temperature": "temperature",  # °C
    "clock": "clock",  # MHz
    "energy": "energy",  # J, the hardware's own counter
}

# "fine" ends an earlier state. "silent": no answer at the moment. "note": for the reader only.
Why = Literal["fine", "not supported", "refused", "lost", "silent", "note"]


@dataclass(frozen=True)
class Device:
    """Something that is sampled: a GPU, the processor, or one core, which is `part_of` "cpu"."""

    key: str  # "gpu0", "cpu", "core3": unique in a recording
    name: str  # "NVIDIA H200", "core 3"
    sort: Literal["gpu", "cpu", "core"]
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
        return {"gpu": f"GPU {number}", "core": f"core {number}"}.get(self.sort, "CPU")


@dataclass(frozen=True)
class State:
    """Why a device (or one metric of it, or a whole source) gives no number, from `time` on."""

    time: float
    device: str  # key of a device, or the name of a source
    metric: str  # "" for all of it
    why: Why
    says: str  # one or two sentences for the reader: what happened, and what to do
