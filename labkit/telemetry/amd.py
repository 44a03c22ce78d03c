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
from labkit.telemetry.metrics import METRICS, Device, State

# Of each metric: its file, and what to divide by.
FILES = {
    "utilisation": ("gpu_busy_percent", 1.0),
    "memory_activity": ("mem_busy_percent", 1.0),
    "memory": ("mem_info_vram_used", 1.0),
    "power": ("hwmon/hwmon*/power1_average", 1e6),
    "temperature": ("hwmon/hwmon*/temp1_input", 1e3),
    "clock": ("hwmon/hwmon*/freq1_input", 1e6),
}


class Reading(NamedTuple):
    """An open file, which is read anew at each sample, and what to divide its number by."""

    file: int
    scale: float

    def read(self) -> float | None:
        """The number now; None where the driver has none at the moment."""
        try:
            return int(os.pread(self.file, 32, 0)) / self.scale
        except (OSError, ValueError):
            return None


class AmdGpus:
    """All AMD GPUs of this machine; `root` lets a test bring its own /sys."""

    name = "gpus"
    metrics: tuple[str, ...] = tuple(FILES)

    def __init__(self, root: Path = Path("/"), clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        cards = root.glob("sys/class/drm/card*/device/mem_info_vram_total")
        self.folders = sorted((one.parent for one in cards), key=lambda f: (len(str(f)), f))
        self._readings: list[list[Reading | None]] = []
        self._kept: list[tuple[float, list[list[float | None]]]] = []

    def open(self) -> tuple[tuple[Device, ...], tuple[State, ...]]:
        """The devices, and what they do not report."""
        devices, states = [], []
        for number, folder in enumerate(self.folders):
            name = _text(folder, "product_name") or f"AMD GPU {_text(folder, 'device')}"
            total, cap = _text(folder, "mem_info_vram_total"), _text(folder, "hwmon/*/power1_cap")
            device = Device(
                f"gpu{number}", name, "gpu", float(total), int(cap) / 1e6 if cap else None
            )
            readings = [_opened(folder, *FILES[metric]) for metric in FILES]
            for metric, reading in zip(FILES, readings, strict=True):
                if reading is None:
                    says = f"{device.label} does not report its {METRICS[metric].title}."
                    states.append(State(self._clock(), device.key, metric, "not supported", says))
            devices.append(device)
            self._readings.append(readings)
        return tuple(devices), tuple(states)

    def sample(self, edge: bool = False) -> None:
        """Sample now, and keep it for `take`. `edge` makes no difference to a GPU."""
        numbers = [[one and one.read() for one in readings] for readings in self._readings]
        self._kept.append((self._clock(), numbers))

    def take(self) -> tuple[list[tuple[float, str]], tuple[State, ...]]:
        """The rows since the last time (`values_text`); nothing new becomes known."""
        kept, self._kept = self._kept, []
        return [(at, values_text(numbers)) for at, numbers in kept], ()


def _opened(folder: Path, pattern: str, scale: float) -> Reading | None:
    for place in folder.glob(pattern):
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
