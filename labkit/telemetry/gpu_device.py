"""One GPU, or one MIG instance: which questions give its metrics, and what to do when one fails.

Every metric has its ways to be asked, from the best to the last. A way that this driver refuses is
left for the next; a metric without a way left says why, and is tried again now and then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from labkit.telemetry.gpu_calls import Ask
from labkit.telemetry.gpu_checks import Checks
from labkit.telemetry.gpu_faults import Lost, Told, is_absent, lost_state, metric_state, raised
from labkit.telemetry.gpu_lists import Samples
from labkit.telemetry.gpu_ways import Found, ways
from labkit.telemetry.metrics import METRICS, Why

__all__ = ["COLUMNS", "Gauges"]

COLUMNS = {
    name: column
    for column, name in enumerate(
        (
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
    )
}
Takes = tuple[tuple[int, int, str], ...]  # place of an answer, its column, its metric
_MISSING: tuple[Why, ...] = ("not supported", "refused", "silent")
STRIKES = 3  # failures in a row after which a metric is said to be silent
AGAIN_ABSENT, AGAIN_SILENT, AGAIN_LOST = 60.0, 10.0, 5.0  # seconds until another try


class Gauges:
    """The values of one device, kept up to date by `look`."""

    def __init__(
        self, found: Found, pid: int | None, told: Told, wall: Callable[[], float]
    ) -> None:
        self.found = found
        self.values: list[float | None] = [None] * len(COLUMNS)
        self.points: list[tuple[float, float]] = []  # utilisation at the driver's own times
        self._pid, self._told, self._wall = pid, told, wall
        self._asks: dict[str, Ask] = {}
        self._plan: dict[str, tuple[str, ...]] = {}
        self.arrangement = 0  # grows with whatever changes what is asked, or what comes of it
        self.checks = Checks(found.device, found.label, COLUMNS, told)
        self._active: list[tuple[Ask, Takes]] = []
        self._way: dict[str, int] = {}
        self._refusals: dict[str, list[int]] = {}
        self._strikes: dict[str, int] = {}
        self._again: dict[str, float] = {}  # when a metric without a way is tried again
        self._lost_until: float | None = None

    def attach(self, nvml: Any, now: float) -> None:
        """Get a handle (again), and all questions anew."""
        self.close()
        self.values[:] = [None] * len(COLUMNS)
        self._way.clear()
        self._refusals.clear()
        self._strikes.clear()
        self._again.clear()
        try:
            code = self.found.reach(nvml)
            if code == 0:
                self._asks, self._plan = ways(nvml, self.found, self._pid, self._wall)
        except Lost as lost:
            code = lost.code
        self._lost_until = None
        if code:
            self._lose(code, now)
            return
        for metric in COLUMNS:
            self._way[metric] = 0
            if self._told.holds(self.found.device.key, metric) in _MISSING:
                self._strikes[metric] = 0  # so that its first number ends the state
            if not self._plan[metric]:
                self._end(metric, 3, now)
        self._arrange()

    def look(self, nvml: Any, now: float, *, quick: bool = False) -> None:
        """Bring the values up to date; raises `Down` only. A lost device is tried again rarely.

        `quick`: what is asked at every look is up to date already.
        """
        if self._lost_until is not None:
            if now < self._lost_until:
                return
            self.attach(nvml, now)
            quick = False
            if self._lost_until is not None:
                return
        if self._again and now >= min(self._again.values()):
            self._try_again(now)
        try:
            self._ask_all(now, quick=quick)
        except Lost as lost:
            self._lose(lost.code, now)
            return
        if self._told.holds(self.found.device.key, ""):
            self._told.fine(now, self.found.device.key, "", f"{self.found.label} answers again.")
        self.checks.judge(now, self.values)

    def quick(self) -> list[tuple[Ask, Takes]] | None:
        """What is asked at every look, if its answers can be put by and all goes well with them."""
        if self._lost_until is not None:
            return []
        quick = [(ask, takes) for ask, takes in self._active if not ask.every]
        for ask, takes in quick:
            if ask.call is None or any(metric in self._strikes for _, _, metric in takes):
                return None
        return quick

    def recall(self, then: float) -> None:
        """Bring the values up to date with what the calls have kept; raises `Down` only."""
        if self._lost_until is not None:
            return
        try:
            self._ask_all(then, kept=True)
        except Lost as lost:
            self._lose(lost.code, then)
            return
        self.checks.judge(then, self.values)

    def blank(self) -> None:
        """No value holds any more."""
        self.values[:] = [None] * len(COLUMNS)
        self.points = []

    def close(self) -> None:
        """Give back what NVML has lent."""
        for ask in self._asks.values():
            ask.close()
        self._asks, self._active, self.points = {}, [], []
        self.arrangement += 1

    def _ask_all(self, now: float, *, kept: bool = False, quick: bool = False) -> None:
        changed = False
        values = self.values
        self.points = []
        for ask, takes in self._active:
            if kept:
                if ask.call is None or ask.call.kept is None:
                    continue
            elif now < ask.due or (quick and not ask.every):
                continue
            detail, every = "", ask.every
            try:
                ask.look(now)
            # Whatever nvidia-ml-py or ctypes raise costs these metrics, and no others.
            except Exception as fault:  # noqa: BLE001
                ask.codes[:] = [-1] * len(ask.codes)
                detail = f"{type(fault).__name__}: {fault}"
            # A look comes a little early or late; half a tick must not make it wait a whole one.
            ask.due = now + ask.every * 0.95 if ask.every else now
            changed |= ask.every != every
            if type(ask) is Samples:
                self.points = ask.points
            for place, column, metric in takes:
                code = ask.codes[place]
                if code == 0:
                    values[column] = ask.answers[place]
                    if metric in self._strikes:
                        self._recover(metric, now)
                else:
                    values[column] = None
                    raised(code)
                    changed |= self._fail(metric, code, detail, now)
        if changed:
            self._arrange()

    def _fail(self, metric: str, code: int, detail: str, now: float) -> bool:
        """A question failed for a metric; whether the questions must be arranged anew."""
        self.arrangement += 1
        strikes = self._strikes[metric] = self._strikes.get(metric, 0) + 1
        absent = is_absent(code)
        if not absent and strikes < STRIKES:
            return False
        if self._way[metric] + 1 < len(self._plan[metric]):
            self._refusals.setdefault(metric, []).append(code)
            self._way[metric] += 1
            self._strikes[metric] = 0 if absent else STRIKES - 1
            return True
        if absent:
            self._end(metric, code, now)
            return True
        if metric not in self._again:
            self._again[metric] = now + AGAIN_SILENT
            self._tell(metric, code, detail, now)
        return False

    def _end(self, metric: str, code: int, now: float) -> None:
        """No way is left. Of all refusals, one that can be mended or explained is told."""
        codes = [*self._refusals.pop(metric, []), code]
        chosen = next((each for each in codes if each == 4 or each < 0), code)
        self._way[metric] = len(self._plan[metric])
        self._again[metric] = now + AGAIN_ABSENT
        self._strikes.setdefault(metric, 1)
        self._tell(metric, chosen, "", now)

    def _tell(self, metric: str, code: int, detail: str, now: float) -> None:
        if metric == "process_memory" and self._pid is None:
            why, says = metric_state("", "process_memory", 3, "", "")
            says = "No process was named, so the memory of none is looked for."
        else:
            why, says = metric_state(self.found.label, metric, code, detail, self.found.mig)
        self._told.tell(now, self.found.device.key, metric, why, says)

    def _recover(self, metric: str, now: float) -> None:
        self.arrangement += 1
        del self._strikes[metric]
        self._again.pop(metric, None)
        self._refusals.pop(metric, None)
        says = f"{self.found.label} tells its {METRICS[metric].title} again."
        self._told.fine(now, self.found.device.key, metric, says, *_MISSING)

    def _try_again(self, now: float) -> None:
        for metric in [metric for metric, at in self._again.items() if now >= at]:
            del self._again[metric]
            self._refusals.pop(metric, None)
            if self._plan[metric]:
                self._way[metric] = 0
        self._arrange()

    def _arrange(self) -> None:
        """Which questions are asked, and which of their answers count."""
        self.arrangement += 1
        self._active = []
        for name, ask in self._asks.items():
            takes = tuple(
                (place, COLUMNS[metric], metric)
                for place, metric in enumerate(ask.metrics)
                if self._asked_by(metric) == name
            )
            if takes:
                self._active.append((ask, takes))
        self._arrange_pace()

    def _arrange_pace(self) -> None:
        rates = self._asks.get("rates")
        if rates is not None:
            # Where finer samples tell the utilisation, memory traffic alone is asked less often.
            rates.every = 0.0 if self._asked_by("utilisation") == "rates" else 0.5
            rates.due = float("-inf")

    def _asked_by(self, metric: str) -> str | None:
        plan, way = self._plan[metric], self._way[metric]
        return plan[way] if way < len(plan) else None

    def _lose(self, code: int, now: float) -> None:
        self.blank()
        self.arrangement += 1
        self._lost_until = now + AGAIN_LOST
        why, says = lost_state(self.found.label, code)
        self._told.tell(now, self.found.device.key, "", why, says)
