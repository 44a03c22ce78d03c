"""The processor's temperature and clock, from Linux's files; elsewhere there are none to read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

__all__ = ["Clocks", "clocks", "temperature"]

# Drivers of processors' sensors: Intel, AMD, ARM boards; and what their main sensor is called.
_DRIVERS = ("coretemp", "k10temp", "zenpower", "cpu_thermal", "scpi_sensors")
_MAIN = ("Package id 0", "Tctl", "Tdie", "")
_ZONES = ("x86_pkg_temp", "cpu-thermal", "cpu_thermal", "soc-thermal")


def temperature(root: Path = Path("/")) -> tuple[Callable[[], float] | None, str]:
    """What reads the temperature in °C, or none and the sentence why not."""
    for path in [*_of_drivers(root), *_of_zones(root)]:
        with suppress(OSError, ValueError):
            _degrees(path)
            return partial(_degrees, path), ""
    return None, (
        "This machine does not tell its processor's temperature. Virtual machines and containers "
        "usually do not."
    )


def _degrees(path: Path) -> float:
    return int(path.read_bytes()) / 1000


class Clocks:
    """The cores' clocks in MHz. One core is asked at each look, in turn: on some machines the
    answer takes milliseconds, and there may be a hundred cores.
    """

    def __init__(self, files: Sequence[tuple[int, Path]]) -> None:
        self.newest: dict[int, float] = {}  # of the core that was asked last, and of no other
        self._files = files
        self._turn = 0
        self._all: dict[int, float] = {}

    def read(self, _: float = 0.0) -> float | None:
        """The mean of all cores, once each was asked."""
        core, path = self._files[self._turn]
        self._turn = (self._turn + 1) % len(self._files)
        self.newest = {}
        megahertz = int(path.read_bytes()) / 1000
        self.newest = {core: megahertz}
        self._all[core] = megahertz
        if len(self._all) < len(self._files):
            return None
        return sum(self._all.values()) / len(self._all)


def clocks(root: Path, cores: Sequence[int]) -> tuple[Clocks | None, str]:
    """The clocks of these cores, or none and the sentence why not."""
    folder = root / "sys/devices/system/cpu"
    files = [(core, folder / f"cpu{core}/cpufreq/scaling_cur_freq") for core in cores]
    files = [(core, path) for core, path in files if path.exists()]
    if files:
        return Clocks(files), ""
    return None, (
        "This machine does not tell its processor's clock. Virtual machines and containers "
        "usually do not."
    )


def _of_drivers(root: Path) -> list[Path]:
    found = []
    for folder in sorted((root / "sys/class/hwmon").glob("hwmon*")):
        with suppress(OSError):
            driver = (folder / "name").read_text().strip()
            if driver not in _DRIVERS:
                continue
            for sensor in sorted(folder.glob("temp*_input")):
                label = sensor.with_name(sensor.name.replace("_input", "_label"))
                text = label.read_text().strip() if label.exists() else ""
                if text in _MAIN:
                    found.append((_DRIVERS.index(driver), _MAIN.index(text), sensor))
    return [path for *_, path in sorted(found)]


def _of_zones(root: Path) -> list[Path]:
    found = []
    for folder in sorted((root / "sys/class/thermal").glob("thermal_zone*")):
        with suppress(OSError):
            if (folder / "type").read_text().strip() in _ZONES:
                found.append(folder / "temp")
    return found
