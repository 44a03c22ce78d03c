"""What waiting costs: a model of a cluster's queue, first come, first served, with backfilling.

>>> jobs = [Request("a", 0, devices=6, limit=4), Request("b", 0, devices=8, limit=2),
...         Request("c", 0, devices=2, limit=3)]
>>> queue(jobs, devices=8).wait("c")
0.0
>>> queue(jobs, devices=8, backfill=False).wait("c")
6.0

Times are hours. The rules are those of Slurm's backfilling at their simplest: the first request in
the line gets the earliest moment at which enough devices are free if every job runs to its limit;
later requests may start before it where that does not make it wait longer.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from labkit.arguments import number, whole
from labkit.kinds import Kind, modelled

# How many devices others ask for, how often, and how long they run: many small jobs, few large.
SIZES, OFTEN, MEAN_HOURS = (1, 2, 4, 8), (50, 25, 15, 10), 3.0
DEVICES = 32  # of the cluster
QUEUED = modelled("first come, first served, with backfilling")


@dataclass(frozen=True)
class Request:
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

    request: Request
    start: float
    on_devices: tuple[int, ...]

    @property
    def end(self) -> float:
        """When it is done."""
        return self.start + self.request.hours


@dataclass(frozen=True)
class JobSchedule:
    """Which job ran when, and where. Name it in a cell and it is drawn."""

    devices: int
    started: tuple[Started, ...]
    kind: Kind = QUEUED

    def wait(self, name: str) -> float:
        """Hours between submission and start."""
        [one] = (one for one in self.started if one.request.name == name)
        return float(one.start - one.request.submitted)

    def _repr_mimebundle_(self, **options: object) -> Any:
        from labkit.views.timeline import queue_figure

        return queue_figure(self)._repr_mimebundle_(**options)


def queue(requests: Iterable[Request], devices: int, *, backfill: bool = True) -> JobSchedule:
    """Let the requests through the queue of a cluster of so many devices."""
    arriving = sorted(requests, key=lambda one: one.submitted)
    for one in arriving:
        whole(f"devices of {one.name!r}", one.devices, at_least=1, at_most=devices)
    return JobSchedule(devices, tuple(_run(arriving, devices, backfill)))


def crowd(seed: int, hours: float = 96, load: float = 0.9) -> tuple[Request, ...]:
    """Jobs of others: so much work as keeps a share `load` of the devices busy.

    They ask for one and a half to four times the hours that they need, as people do.
    """
    dice = random.Random(seed)
    work = sum(n * o for n, o in zip(SIZES, OFTEN, strict=True)) / sum(OFTEN) * MEAN_HOURS
    now = 0.0
    jobs: list[Request] = []
    while (now := now + dice.expovariate(load * DEVICES / work)) < hours:
        runs = min(dice.expovariate(1 / MEAN_HOURS), 24.0)
        count = dice.choices(SIZES, OFTEN)[0]
        jobs.append(Request(f"{len(jobs)}", now, count, runs * dice.uniform(1.5, 4.0), runs))
    return tuple(jobs)


@cache
def usual_wait(devices: int, limit: float, *, load: float = 0.9, times: int = 50) -> float:
    """Hours that a request waits: the mean over so many crowds, submitted at hour 48."""
    yours = Request("you", 48.0, devices, limit)
    crowds = (crowd(seed, load=load) for seed in range(times))
    return sum(queue((*others, yours), DEVICES).wait("you") for others in crowds) / times


def _run(arriving: list[Request], devices: int, backfill: bool) -> Iterable[Started]:
    """Each request in the order in which it begins."""
    free, coming = list(range(devices)), arriving[::-1]
    waiting: list[Request] = []
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
    now: float, waiting: list[Request], running: list[Started], free: int, backfill: bool
) -> list[Request]:
    """Jobs that begin now: the first of the line as long as they fit, then backfilled ones."""
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
