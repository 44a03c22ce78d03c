"""A model of a cluster's queue: first come, first served, with backfilling.

>>> jobs = [JobRequest("a", 0, devices=6, limit=4), JobRequest("b", 0, devices=8, limit=2),
...         JobRequest("c", 0, devices=2, limit=3)]
>>> queue(jobs, devices=8).wait("c")
0.0
>>> queue(jobs, devices=8, backfill=False).wait("c")
6.0

Times are hours. The rules are those of Slurm's backfilling at their simplest: the first request in
the line gets the earliest moment at which enough devices are free if every job runs to its limit;
later requests may start before it where that does not make it wait longer.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from labkit.arguments import number, whole
from labkit.kinds import Kind, modelled

if TYPE_CHECKING:
    from labkit.views.sketch import Sketch

# How many devices others ask for, how often, and how long they run: many small jobs, few large.
SIZES, OFTEN, MEAN_HOURS = (1, 2, 4, 8), (50, 25, 15, 10), 3.0
DEVICES = 32  # of the cluster
QUEUED = modelled("first come, first served, with backfilling")


@dataclass(frozen=True)
class JobRequest:
    """A job in the queue: its devices, its time limit, and how long it will really run."""

    name: str
    submitted: float
    devices: int
    limit: float
    runs: float | None = None  # None: to its limit

    def __post_init__(self) -> None:
        whole(f"devices of {self.name!r}", self.devices, at_least=1)
        number(f"limit of {self.name!r}", self.limit, above=0)

    @property
    def hours(self) -> float:
        """How long it runs. Slurm ends what has reached its limit."""
        return self.limit if self.runs is None else min(self.runs, self.limit)


@dataclass(frozen=True)
class Started:
    """A job that has started: when, and on which devices."""

    request: JobRequest
    start: float
    on_devices: tuple[int, ...]

    @property
    def end(self) -> float:
        """When it is done."""
        return self.start + self.request.hours


@dataclass(frozen=True)
class JobSchedule:
    """When and where each job ran. A cell draws it."""

    devices: int
    started: tuple[Started, ...]
    kind: Kind = QUEUED

    def wait(self, name: str) -> float:
        """Returns the hours between submission and start."""
        [one] = (one for one in self.started if one.request.name == name)
        return float(one.start - one.request.submitted)

    def board(
        self, title: str = "Who runs when, and where",
        subtitle: str = "A row is a device. Each job has as many rows as it asked for devices.",
    ) -> Sketch:  # fmt: skip
        """Returns its drawing."""
        from labkit.views.lanes import Bar, BarStyle, Lanes

        ordered = sorted(self.started, key=lambda one: one.request.submitted)
        states = {
            one.request.name: BarStyle("", n % 6, 0.04, 0.92) for n, one in enumerate(ordered)
        }
        bars = [
            Bar(first, one.request.name, one.start, one.end, (one.request.name,), count)
            for one in ordered
            for first, count in _neighbours(one.on_devices)
        ]
        names = [f"device {device}" for device in range(self.devices)]
        return Lanes(title, subtitle, bars, states, names, self.kind, unit="hours", high=30).board

    def _repr_mimebundle_(self, **options: object) -> Any:
        text = "; ".join(
            f"{one.request.name} on {one.request.devices}, submitted at "
            f"{one.request.submitted:g} h, ran from {one.start:g} h to {one.end:g} h"
            for one in self.started
        )
        alt = f"A queue for {self.devices} devices over hours. {text}."
        return self.board().picture(alt)._repr_mimebundle_(**options)


def _neighbours(devices: tuple[int, ...]) -> list[tuple[int, int]]:
    """Returns neighbouring devices together, as (first, how many)."""
    found: list[tuple[int, int]] = []
    for device in devices:
        if found and sum(found[-1]) == device:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((device, 1))
    return found


def queue(requests: Iterable[JobRequest], devices: int, *, backfill: bool = True) -> JobSchedule:
    """Returns when each request runs, and where, on a cluster with this number of devices."""
    arriving = sorted(requests, key=lambda one: one.submitted)
    for one in arriving:
        whole(f"devices of {one.name!r}", one.devices, at_least=1, at_most=devices)
    return JobSchedule(devices, tuple(_run(arriving, devices, backfill)))


def crowd(seed: int, hours: float = 96, load: float = 0.9) -> tuple[JobRequest, ...]:
    """Returns the jobs of others, whose work keeps a share `load` of the devices busy.

    They ask for one and a half to four times the hours that they need, as people do.
    """
    dice = random.Random(seed)
    work = sum(n * o for n, o in zip(SIZES, OFTEN, strict=True)) / sum(OFTEN) * MEAN_HOURS
    now = 0.0
    jobs: list[JobRequest] = []
    while (now := now + dice.expovariate(load * DEVICES / work)) < hours:
        runs = min(dice.expovariate(1 / MEAN_HOURS), 24.0)
        count = dice.choices(SIZES, OFTEN)[0]
        jobs.append(JobRequest(f"{len(jobs)}", now, count, runs * dice.uniform(1.5, 4.0), runs))
    return tuple(jobs)


@cache
def usual_wait(devices: int, limit: float, *, load: float = 0.9, times: int = 50) -> float:
    """Returns the hours that a request of hour 48 waits, the mean over `times` crowds."""
    yours = JobRequest("you", 48.0, devices, limit)
    crowds = (crowd(seed, load=load) for seed in range(times))
    return sum(queue((*others, yours), DEVICES).wait("you") for others in crowds) / times


def _run(arriving: list[JobRequest], devices: int, backfill: bool) -> Iterable[Started]:
    """Yields each request in the order in which it begins."""
    free, coming = list(range(devices)), arriving[::-1]
    waiting: list[JobRequest] = []
    running: list[Started] = []
    while coming or waiting:
        now = min([one.end for one in running] + [one.submitted for one in coming[-1:]])
        for one in [one for one in running if one.end <= now]:
            running.remove(one)
            free = sorted([*free, *one.on_devices])
        while coming and coming[-1].submitted <= now:
            waiting.append(coming.pop())
        for request in _chosen(now, waiting, running, len(free), backfill):
            waiting.remove(request)
            begun = Started(request, now, tuple(free[: request.devices]))
            free = free[request.devices :]
            running.append(begun)
            yield begun


def _chosen(
    now: float, waiting: list[JobRequest], running: list[Started], free: int, backfill: bool
) -> list[JobRequest]:
    """Returns the jobs that begin now: the first of the line that fit, then backfilled ones."""
    line, begin = list(waiting), []
    while line and line[0].devices <= free:
        begin.append(line.pop(0))
        free -= begin[-1].devices
    if not line or not backfill:
        return begin
    # The scheduler knows limits only, not when a program will really end.
    ends = [(one.start + one.request.limit, one.request.devices) for one in running]
    ends += [(now + one.limit, one.devices) for one in begin]
    then, when = free, now
    for end, count in sorted(ends):
        if then >= line[0].devices and end > when:
            break
        then, when = then + count, end
    spare = then - line[0].devices
    for one in line[1:]:
        done_before = now + one.limit <= when
        if one.devices <= free and (done_before or one.devices <= spare):
            begin.append(one)
            free -= one.devices
            spare -= 0 if done_before else one.devices
    return begin
