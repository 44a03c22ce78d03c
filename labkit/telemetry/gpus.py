"""NVIDIA's GPUs as a source of telemetry: all of them at each look, whatever fails on any.

Quick gauges are asked at every look, in few calls: energy and power together, memory, utilisation.
SM counters, traffic, temperature, clock and processes, which change slowly or cost more, are asked
once a second, every two seconds while nobody watches, and hold in between. Nothing that makes the
driver wait is asked at all.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from labkit.hardware.gpus import open_driver
from labkit.telemetry.gpu_device import COLUMNS, Gauges
from labkit.telemetry.gpu_faults import Down, Told, down_says, lost_state
from labkit.telemetry.gpu_glances import Glance, Glances
from labkit.telemetry.gpu_ways import found_devices
from labkit.telemetry.metrics import Device, Reading, Row, State, Why

__all__ = ["Gpus"]

# What the name of NVML's error means for all GPUs together, when the driver is opened.
_WHY: dict[str, Why] = {"LIBRARY_NOT_FOUND": "note", "MISSING": "note", "NO_PERMISSION": "refused"}
_MOST_POINTS = 20  # more rows than this from one look are no finer, but a jam
_GRID = 0.02  # seconds; what GPUs have kept so close together goes into one row
_UTILISATION, _ENERGY = COLUMNS["utilisation"], COLUMNS["energy"]
_LATEST_TRY = 30.0  # seconds between two tries to reach a driver that has gone


class Gpus:
    """All GPUs and MIG instances of this machine. `pid`: whose memory is looked for on them.

    >>> with closing(Gpus(os.getpid())) as gpus:                # doctest: +SKIP
    ...     devices, states = gpus.open()
    ...     reading = gpus.read()
    """

    name = "gpus"
    metrics = tuple(COLUMNS)

    def __init__(
        self,
        pid: int | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._pid, self._clock, self._wall = pid, clock, wall
        self._told = Told()
        self._nvml: Any = None
        self._gauges: list[Gauges] = []
        self._again: float | None = None  # when a driver that has gone is tried again
        self._wait = 1.0
        self._latest = float("-inf")  # the time of the last row
        self._glances: Glances | None = None  # while all is as usual
        self._kept: list[Glance] = []  # what is not worked out yet

    def open(self) -> tuple[tuple[Device, ...], tuple[State, ...]]:
        """Find the devices. No driver, or a broken one, is no fault of ours: a state says so."""
        self.close()
        self._told = Told()
        now = self._clock()
        opened = open_driver()
        if opened.pynvml is None:
            why = _WHY.get(opened.fault, "lost")
            return (), (State(now, self.name, "", why, opened.says),)
        nvml = self._nvml = opened.pynvml
        try:
            found = found_devices(nvml)
        except nvml.NVMLError as fault:
            why, says = lost_state("the driver's list of GPUs", int(fault.value))
            return (), (State(now, self.name, "", why, says),)
        self._gauges = [Gauges(each, self._pid, self._told, self._wall) for each in found]
        try:
            for gauges in self._gauges:
                gauges.attach(nvml, now)
        except Down as down:
            self._went_down(down.code, now)
        if not found:
            says = "The NVIDIA driver works, but shows no GPU here."
            self._told.tell(now, self.name, "", "note", says)
        return tuple(each.device for each in found), self._told.take()

    def glance(self, marked: bool = False) -> bool:
        """Look now, and leave the working out to `read`, which is then paid once for many looks.

        False: this look should be read now; something went wrong, or cannot wait.
        """
        glances = self._glances
        if glances is None:
            if self._again is not None or any(each.quick() is None for each in self._gauges):
                return False
            glances = self._glances = Glances(self._gauges)
        taken = glances.take(self._clock())
        self._kept.append(taken)
        return taken.codes is None

    def read(self) -> Reading:
        """Look once at all devices; the rows of earlier glances come first."""
        earlier = self._recalled() if self._kept else ()
        now = self._clock()
        if self._again is not None and now >= self._again:
            self._reopen(now)
        if self._again is None:
            try:
                self._look(now)
            except Down as down:
                self._went_down(down.code, now)
        now = max(now, self._latest)
        rows = (*earlier, *self._kept_rows(now), self._row(now))
        self._latest = now
        return Reading(rows, self._told.take())

    def recall(self) -> Reading:
        """The rows of the glances so far; what is asked more rarely waits for the next `read`."""
        return Reading(tuple(self._recalled()), self._told.take())

    def _look(self, now: float) -> None:
        glances = self._glances
        quick = glances is not None and glances.tell(glances.take(now))
        if glances and quick:
            glances.answer()
        for gauges in self._gauges:
            gauges.look(self._nvml, now, quick=quick)
        if glances and not glances.hold:
            self._glances = None

    def _recalled(self) -> list[Row]:
        kept, self._kept = self._kept, []
        rows: list[Row] = []
        glances = self._glances
        if glances is None:
            return rows
        hold = True
        try:
            for glance in kept:
                then = glance.time
                if hold and glances.tell(glance):
                    for gauges in self._gauges:
                        gauges.checks.judge(then, gauges.values)
                else:
                    glances.replay(glance)
                    for gauges in self._gauges:
                        gauges.recall(then)
                    glances.forget()
                    hold = glances.hold
                if then > self._latest:
                    rows.append(self._row(then))
                    self._latest = then
        except Down as down:
            glances.forget()
            self._went_down(down.code, self._clock())
        if not hold:
            self._glances = None
        return rows

    def close(self) -> None:
        """Let the driver go."""
        self._glances, self._kept = None, []
        for gauges in self._gauges:
            gauges.close()
        self._gauges = []
        self._again, self._wait = None, 1.0
        self._shut()

    def _shut(self) -> None:
        nvml, self._nvml = self._nvml, None
        if nvml is not None:
            with suppress(nvml.NVMLError):
                nvml.nvmlShutdown()

    def _row(self, now: float) -> Row:
        return Row(now, tuple([tuple(gauges.values) for gauges in self._gauges]))

    def _kept_rows(self, now: float) -> list[Row]:
        """Utilisation that the driver has kept since the last row, at its own times.

        The other gauges hold what they show now; counters have no number there.
        """
        kept: dict[int, dict[int, list[tuple[float, float]]]] = {}
        for device, gauges in enumerate(self._gauges):
            # Where the last look was found implausible, what it was made from is no better.
            if gauges.points and gauges.values[_UTILISATION] is not None:
                for at, share in gauges.points:
                    if self._latest < at < now and 0 <= share <= 100:
                        slot = kept.setdefault(round(at / _GRID), {})
                        slot.setdefault(device, []).append((at, share))
        rows = []
        latest = self._latest
        for _, found in sorted(kept.items())[-_MOST_POINTS:]:
            at = max(points[-1][0] for points in found.values())
            if latest < at < now:
                rows.append(Row(at, self._values_with(found)))
                latest = at
        return rows

    def _values_with(
        self, found: dict[int, list[tuple[float, float]]]
    ) -> tuple[tuple[float | None, ...], ...]:
        filled = []
        for device, gauges in enumerate(self._gauges):
            values = list(gauges.values)
            values[_ENERGY] = None
            if device in found:
                shares = [share for _, share in found[device]]
                values[_UTILISATION] = sum(shares) / len(shares)
            filled.append(tuple(values))
        return tuple(filled)

    def _went_down(self, code: int, now: float) -> None:
        self._glances = None
        for gauges in self._gauges:
            gauges.blank()
        self._again = now + self._wait
        self._wait = min(2 * self._wait, _LATEST_TRY)
        self._told.tell(now, self.name, "", "lost", down_says(code))

    def _reopen(self, now: float) -> None:
        """Try to reach a driver that has gone; its GPUs are looked for by their UUIDs."""
        for gauges in self._gauges:
            gauges.close()
        self._shut()
        opened = open_driver()
        if opened.pynvml is None:
            self._again = now + self._wait
            self._wait = min(2 * self._wait, _LATEST_TRY)
            return
        self._nvml, self._again = opened.pynvml, None
        try:
            for gauges in self._gauges:
                gauges.attach(self._nvml, now)
                gauges.look(self._nvml, now)
        except Down as down:
            self._went_down(down.code, now)
            return
        self._wait = 1.0
        self._told.fine(now, self.name, "", "The NVIDIA driver answers again.")
