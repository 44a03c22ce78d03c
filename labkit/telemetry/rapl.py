"""How much energy the processor has used, where Linux lets us read its counter (RAPL)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

__all__ = ["Energy", "Jumped", "Package", "packages"]

POSSIBLE = 2_000.0  # watts; no processor in one socket uses more
SHORT = 0.045  # seconds: over less, the steps of the counter would show in the power


class Jumped(Exception):
    """The counter was set back or has leapt, as after a sleep of the machine."""


class Package:
    """The counter of one socket. It wraps around every few minutes; what `read` gives does not."""

    def __init__(self, path: Path, range_joules: float) -> None:
        self.path = path
        self._range = range_joules
        self._joules = 0.0
        self._last: float | None = None
        self._time = 0.0

    def read(self, now: float) -> float:
        """Joules since the first reading."""
        value = int(self.path.read_bytes()) / 1e6
        last, before = self._last, self._time
        self._last, self._time = value, now
        if last is None:
            return self._joules
        growth = value - last if value >= last else value - last + self._range
        if growth < 0 or growth > POSSIBLE * max(now - before, SHORT):
            raise Jumped(
                f"it went from {last:.0f} J to {value:.0f} J in {now - before:.1f} s, "
                "which no processor can"
            )
        self._joules += growth
        return self._joules


class Energy:
    """All sockets together."""

    def __init__(self, sockets: Sequence[Package]) -> None:
        self._sockets = sockets
        self._base: tuple[float, float] | None = None
        self.watts: float | None = None  # since the look before the last; None: nothing new

    def read(self, now: float) -> float:
        """Joules since the first reading."""
        self.watts = None
        try:
            joules = sum([socket.read(now) for socket in self._sockets])
        except (Jumped, OSError, ValueError):
            self._base = None
            raise
        if self._base is None:
            self._base = (now, joules)
        elif now - self._base[0] >= SHORT:
            self.watts = (joules - self._base[1]) / (now - self._base[0])
            self._base = (now, joules)
        return joules


def packages(folder: Path = Path("/sys/class/powercap")) -> tuple[tuple[Package, ...], str]:
    """The counters of all sockets, or none and the sentence why not."""
    found, refused = [], False
    for zone in sorted(folder.glob("intel-rapl:*")):  # so named on AMD's processors, too
        try:
            if not (zone / "name").read_text().startswith("package"):
                continue
            most = int((zone / "max_energy_range_uj").read_text()) / 1e6
            int((zone / "energy_uj").read_bytes())
        except PermissionError:
            refused = True
        except (OSError, ValueError):
            continue
        else:
            found.append(Package(zone / "energy_uj", most))
    if refused:
        return (), (
            "Only the administrator may read the processor's energy on this machine, so its power "
            "is not shown. Ask them for the right to read energy_uj in /sys/class/powercap."
        )
    if not found:
        return (), (
            "This machine does not tell how much power its processor uses. "
            "Virtual machines and containers usually do not."
        )
    return tuple(found), ""
