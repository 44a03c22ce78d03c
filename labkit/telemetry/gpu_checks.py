"""Numbers that cannot be true together, or cannot be true at all: told, never shown as readings."""

from __future__ import annotations

from operator import itemgetter

from labkit.kinds import bytes_text
from labkit.telemetry.gpu_faults import Told
from labkit.telemetry.metrics import METRICS, Device

__all__ = ["Checks"]

PATIENCE = 1.5  # seconds; power and utilisation are averaged over up to one, each by its own clock
_JUDGED = (
    "utilisation",
    "memory_activity",
    "sm_activity",
    "memory",
    "temperature",
    "power",
    "energy",
)
REBASE = 3.0  # seconds for which an energy counter that fell must grow to be believed again


class Checks:
    """What is known about one device's numbers so far."""

    def __init__(self, device: Device, label: str, columns: dict[str, int], told: Told) -> None:
        self._key, self._label, self._told = device.key, label, told
        self._total, self._limit = device.memory_total, device.power_limit
        self._column = columns
        self._most_power = 2 * device.power_limit if device.power_limit else float("inf")
        self._idle_power = float("inf")
        self._contradicts_since: float | None = None
        self._energy = float("-inf")  # the last that was shown
        self._offset = 0.0  # what an earlier fall of the counter had taken
        self._fell: tuple[float, float] | None = None  # when, and the counter at the last look
        self._wrong: set[str] = set()  # what was implausible when it was last told
        self._read = itemgetter(*(columns[metric] for metric in _JUDGED))

    def judge(self, now: float, values: list[float | None]) -> None:
        """Put None in the place of what cannot be true, and tell why."""
        quiet = not self._wrong and self._contradicts_since is None
        if quiet and self._all_well(values):
            return
        for metric in ("memory_activity", "sm_activity"):
            share = values[self._column[metric]]
            if share is not None:
                self._settle(now, values, metric, self._no_share(metric, share))
        self._memory(now, values)
        self._temperature(now, values)
        self._power(now, values)
        self._utilisation(now, values)
        self._energy_counter(now, values)

    def _all_well(self, values: list[float | None]) -> bool:
        """The usual case, which must cost next to nothing ten times a second."""
        utilisation, traffic, sm, memory, degrees, power, energy = self._read(values)
        if energy is not None:
            shown = energy + self._offset
            if shown < self._energy:
                return False
        well = (
            (utilisation is None or 0 < utilisation <= 100 or power is None or power < self._much())
            and (utilisation is None or 0 <= utilisation <= 100)
            and (traffic is None or traffic <= 100)
            and (sm is None or 0 <= sm <= 100)
            and (memory is None or self._total is None or memory <= self._total)
            and (degrees is None or 0 < degrees <= 150)
            and (power is None or self._idle_power <= power <= self._most_power)
        )
        if well and energy is not None:
            self._energy = values[self._column["energy"]] = shown
        return well

    def _settle(self, now: float, values: list[float | None], metric: str, says: str) -> None:
        if says:
            values[self._column[metric]] = None
            self._wrong.add(metric)
            self._told.tell(now, self._key, metric, "implausible", says)
        elif metric in self._wrong:
            self._wrong.remove(metric)
            self._told.fine(
                now, self._key, metric, f"{self._label} is plausible again.", "implausible"
            )

    def _memory(self, now: float, values: list[float | None]) -> None:
        used = values[self._column["memory"]]
        if used is None:
            return
        says = ""
        if self._total is not None and used > self._total:
            says = (
                f"{self._label} says that {bytes_text(used)} of its {bytes_text(self._total)} "
                "memory are in use."
            )
        self._settle(now, values, "memory", says)

    def _temperature(self, now: float, values: list[float | None]) -> None:
        degrees = values[self._column["temperature"]]
        if degrees is not None:
            wrong = not 0 < degrees <= 150
            says = f"{self._label} says that it is {degrees:g} °C warm." if wrong else ""
            self._settle(now, values, "temperature", says)

    def _power(self, now: float, values: list[float | None]) -> None:
        power = values[self._column["power"]]
        if power is None:
            return
        says = ""
        if self._limit and power > self._most_power:
            says = f"{self._label} says {power:.0f} W, and its limit is {self._limit:.0f} W."
        elif power > 0:
            self._idle_power = min(self._idle_power, power)
        self._settle(now, values, "power", says)

    def _utilisation(self, now: float, values: list[float | None]) -> None:
        """A GPU that draws much more than at rest works, whatever its utilisation says."""
        utilisation, power = values[self._column["utilisation"]], values[self._column["power"]]
        if utilisation is None:
            return
        says = self._no_share("utilisation", utilisation)
        if utilisation != 0 or power is None or power < self._much():
            self._contradicts_since = None
        elif self._contradicts_since is None:
            self._contradicts_since = now
        elif now - self._contradicts_since >= PATIENCE:
            limit = f" (limit {self._limit:.0f} W)" if self._limit else ""
            says = (
                f"{self._label} draws {power:.0f} W{limit} while its utilisation says 0 %. "
                "Both cannot be true; believe the power."
            )
        self._settle(now, values, "utilisation", says)

    def _no_share(self, metric: str, share: float) -> str:
        if 0 <= share <= 100.5:
            return ""
        return f"{self._label} says {share:g} % {METRICS[metric].title}."

    def _much(self) -> float:
        """Watts that a GPU at rest does not draw."""
        return min(3 * self._idle_power, 0.6 * self._limit if self._limit else float("inf"))

    def _energy_counter(self, now: float, values: list[float | None]) -> None:
        column = self._column["energy"]
        counter = values[column]
        if counter is None:
            return
        shown = counter + self._offset
        if shown >= self._energy:
            self._energy, self._fell = shown, None
            values[column] = shown
            self._settle(now, values, "energy", "")
            return
        # A counter that has been set back (the driver was reloaded) goes on from where it was, once
        # it has grown for a while; what was used in between is missing from sums, and told.
        values[column] = None
        since, before = self._fell or (now, counter)
        since = since if counter >= before else now
        self._fell = (since, counter)
        if now - since >= REBASE:
            self._offset, self._fell = self._energy - counter, None
            values[column] = self._energy
            self._settle(now, values, "energy", "")
            return
        says = (
            f"The energy counter of {self._label} fell from {self._energy:.0f} J to {shown:.0f} J. "
            "If it stays there, it was set back, and energy is counted on from there."
        )
        self._settle(now, values, "energy", says)
