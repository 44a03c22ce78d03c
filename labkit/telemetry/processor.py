"""The processor's time: how busy it was, from counters that only grow."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path

__all__ = ["SHORT", "CoreTimes", "File", "Quota", "Times", "core_times"]

SHORT = 0.045  # seconds: over less, a core's counter tells nothing

Times = dict[int, tuple[float, float]]  # of each core: how long it was busy, and all time


class File:
    """A file of the kernel's that is read from its beginning again and again.

    `every`: seconds that lie between two moments at which it is put by.
    """

    def __init__(self, path: Path, every: float = 0.0) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._room = 4096
        self._every, self._due = every, -inf
        self._kept: dict[float, bytes] = {}
        self._moment: float | None = None

    def keep(self, moment: float, *, certainly: bool = False) -> None:
        """Put by what it says now, to be read as what it said at that moment."""
        if certainly or moment >= self._due:
            self._kept[moment] = self._now()
            self._due = moment + self._every

    def recall(self, moment: float) -> None:
        """`read` tells what it said at that moment, until `forget`."""
        self._moment = moment

    def forget(self) -> None:
        """`read` tells about now again."""
        self._moment = None
        self._kept.clear()

    @property
    def known(self) -> bool:
        """Whether there is something to read: not at a moment at which it was not put by."""
        return self._moment is None or self._moment in self._kept

    def read(self) -> bytes:
        """All of it, as it is now, or was at the moment that is recalled."""
        return self._now() if self._moment is None else self._kept[self._moment]

    def _now(self) -> bytes:
        while True:
            content = os.pread(self._descriptor, self._room, 0)
            if len(content) < self._room:
                return content
            self._room *= 2

    def close(self) -> None:
        """Let it go."""
        os.close(self._descriptor)


class CoreTimes:
    """Utilisation of the cores from their counters of busy and of all time."""

    def __init__(self, ask: Callable[[], Times], cores: Sequence[int]) -> None:
        self.by_core: dict[
            int, float | None
        ] = {}  # per cent since the look before; empty: too soon
        self._ask, self._cores = ask, cores
        self._base: Times = {}
        self._time = 0.0

    def read(self, now: float) -> float | None:
        """The mean of all cores in per cent; None when too little time has passed."""
        self.by_core = {}
        if self._base and now - self._time < SHORT:
            return None
        base, self._base, self._time = self._base, self._ask(), now
        for core in self._cores:
            if core not in base or core not in self._base:
                continue  # switched off
            busy, passed = (
                new - old for new, old in zip(self._base[core], base[core], strict=True)
            )
            if passed > 0:
                self.by_core[core] = round(min(100.0, max(0.0, 100 * busy / passed)), 2)
        known = [value for value in self.by_core.values() if value is not None]
        return round(sum(known) / len(known), 2) if known else None


class Quota:
    """Utilisation of a container: the time that it has used, as a share of its quota."""

    def __init__(self, file: File, quota: float, cores: CoreTimes) -> None:
        self._file, self._quota, self._cores = file, quota, cores
        self._base: tuple[float, float] | None = None

    def read(self, now: float) -> float | None:
        """Per cent of the quota; the single cores are read as well."""
        self._cores.read(now)
        base = self._base
        if base and now - base[0] < SHORT:
            return None
        self._base = (now, _seconds_used(self._file.read()))
        if base is None:
            return None
        share = (self._base[1] - base[1]) / ((now - base[0]) * self._quota)
        return min(100.0, max(0.0, 100 * share))  # a burst may go beyond the quota


def core_times(stat: bytes) -> Times:
    r"""Busy and all time of each core, in ticks.

    >>> core_times(b"cpu  9 9\ncpu3 10 0 5 80 5 0 0 0 7 0\nintr 1")
    {3: (15, 100)}
    """
    found: Times = {}
    end = stat.find(b"\nintr")  # a long line follows, which need not be taken apart
    for line in stat[: end if end >= 0 else None].split(b"\n")[1:]:
        if not line.startswith(b"cpu"):
            break
        # user, nice, system, idle, iowait, irq, softirq, steal; guests are in user already.
        name, *counts = line.split(None, 9)[:9]
        ticks = list(map(int, counts))
        total = sum(ticks)
        found[int(name[3:])] = (total - ticks[3] - ticks[4], total)
    return found


def _seconds_used(content: bytes) -> float:
    r"""What a control group has used: cpu.stat of version 2, cpuacct.usage of version 1.

    >>> _seconds_used(b"usage_usec 2500000\nuser_usec 1\n"), _seconds_used(b"2500000000\n")
    (2.5, 2.5)
    """
    if content.startswith(b"usage_usec"):
        return int(content.split(None, 2)[1]) / 1e6
    return int(content) / 1e9
