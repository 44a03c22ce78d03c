"""AMD's GPUs as a source of samples: the files of their Linux driver, amdgpu, under /sys.

Instinct and Radeon cards have the same files. Not tried on real hardware: the tests bring a /sys.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from labkit.telemetry.format import values_text
from labkit.telemetry.metrics import METRICS, Device, DeviceState, Processes
from labkit.telemetry.nvidia import NAMES, NvidiaGpus

# For each metric its file (of several files the first that exists), and what to divide by.
FILES = {
    "utilisation": ("gpu_busy_percent", 1.0),
    "memory_activity": ("mem_busy_percent", 1.0),
    "memory": ("mem_info_vram_used", 1.0),
    # Since Linux 6.6 most cards have the second.
    "power": ("hwmon/hwmon*/power1_average hwmon/hwmon*/power1_input", 1e6),
    "temperature": ("hwmon/hwmon*/temp1_input", 1e3),
    "clock": ("hwmon/hwmon*/freq1_input", 1e6),
}


class Reading(NamedTuple):
    """An open file that is read at every sample, and what to divide its number by."""

    file: int
    scale: float

    def read(self) -> float | None:
        """Returns the number now, or None if the driver has none at the moment."""
        try:
            return int(os.pread(self.file, 32, 0)) / self.scale
        except (OSError, ValueError):
            return None


class AmdGpus:
    """All AMD GPUs of this machine, after NVIDIA's `others`: a Ryzen has a GPU of its own.

    All GPUs are one source, so that sums over them are of one moment. `root` lets a test bring its
    own /sys.
    """

    name, metrics = "gpus", NAMES

    def __init__(
        self,
        others: NvidiaGpus,
        root: Path = Path("/"),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._others, self._clock, self.follow = others, clock, others.follow
        cards = root.glob("sys/class/drm/card*/device/mem_info_vram_total")
        self.folders = sorted((card.parent for card in cards), key=lambda f: (len(str(f)), f))
        self._sampled: NvidiaGpus | None = None
        self._readings: list[list[Reading | None]] = []
        self._kept: list[tuple[float, list[list[float | None]]]] = []

    def open(self) -> tuple[tuple[Device, ...], tuple[DeviceState, ...]]:
        """Returns the devices, and states of what they do not report."""
        others, whys = self._others.open()
        self._sampled = self._others if others else None
        # A machine with AMD's GPUs needs no note that it has none of NVIDIA's.
        devices, states = [*others], [state for state in whys if state.why != "note"]
        for number, folder in enumerate(self.folders, len(others)):
            name = _text(folder, "product_name") or f"AMD GPU {_text(folder, 'device')}"
            total, cap = _text(folder, "mem_info_vram_total"), _text(folder, "hwmon/*/power1_cap")
            device = Device(
                f"gpu{number}", name, "gpu", float(total), int(cap) / 1e6 if cap else None
            )
            readings = [_opened(folder, *FILES.get(metric, ("", 1.0))) for metric in NAMES]
            for metric, reading in zip(NAMES, readings, strict=True):
                if reading is None:
                    says = f"{device.label} does not report its {METRICS[metric].title}."
                    states.append(
                        DeviceState(self._clock(), device.key, metric, "not supported", says)
                    )
            devices.append(device)
            self._readings.append(readings)
        return tuple(devices), tuple(states)

    def sample(self, edge: bool = False) -> None:
        """Sample now, and keep it for `take`. AMD's have no counter that an `edge` would read."""
        if self._sampled:
            self._sampled.sample(edge)
        numbers = [[reading and reading.read() for reading in own] for own in self._readings]
        self._kept.append((self._clock(), numbers))

    def take(self) -> tuple[list[tuple[float, str]], tuple[DeviceState | Processes, ...]]:
        """Returns the rows since the last call (`values_text`), and what became known."""
        kept, self._kept = self._kept, []
        own = [(at, values_text(numbers)) for at, numbers in kept]
        if not self._sampled:
            return own, ()
        rows, states = self._sampled.take()
        both = zip(rows, own, strict=True)
        return [(at, f"{theirs},{values}") for (_, theirs), (at, values) in both], states


def _opened(folder: Path, pattern: str, scale: float) -> Reading | None:
    for place in (place for name in pattern.split() for place in folder.glob(name)):
        try:
            reading = Reading(os.open(place, os.O_RDONLY), scale)
        except OSError:
            continue
        if reading.read() is not None:
            return reading
        os.close(reading.file)
    return None


def _text(folder: Path, pattern: str) -> str:
    place = next(folder.glob(pattern), None)
    return place.read_text().strip() if place else ""
