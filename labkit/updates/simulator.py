"""Every update of a training with many workers, event by event: nothing is timed, all is exact.

A worker takes the weights from the server, computes, and sends its gradient; the server deals
with one gradient after the other. The modes differ only in who has to wait.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from labkit.kinds import LabError, modelled, seconds_text
from labkit.updates.asked import Plan, none_made, number, plan, speeds_text
from labkit.updates.problems import is_problem
from labkit.updates.record import Gradient, Updates
from labkit.updates.snapshots import Snapshots, overflowing

__all__ = ["simulate"]

MOST = 100_000  # gradients: more than a picture or a memory can use


def simulate(
    problem: Any = None,
    *,
    workers: int = 4,
    mode: str = "async",
    updates: int | None = None,
    seconds: float | None = None,
    compute: float = 1.0,
    jitter: float = 0.0,
    slow: Mapping[int, float] | None = None,
    network: float = 0.0,
    apply: float = 0.0,
    bound: int | None = None,
    backups: int = 0,
    learning_rate: float = 0.1,
    seed: int = 0,
) -> Updates:
    """What would happen, exactly: who reads which version, who waits, and how the loss falls.

    >>> simulate(workers=4, slow={3: 4.0}, mode="sync", updates=10).seconds
    40.0

    mode: "sync" waits for all workers (but `backups` of them), "async" for none, "bounded" for
    those that are more than `bound` steps behind.
    compute: seconds for a gradient; slow={3: 4.0} makes worker 3 four times as slow; jitter is the
    standard deviation as a share of that (1.0: exponential). network: seconds for a message, one
    way. apply: seconds for a gradient at the server. It ends after `updates` (100) or `seconds`.
    """
    asked = plan(
        mode=mode, workers=workers, updates=updates, seconds=seconds, compute=compute, slow=slow,
        bound=bound, backups=backups, learning_rate=learning_rate, seed=seed,
        jitter=jitter,
    )  # fmt: skip
    if problem is not None:
        is_problem(problem)
    run = _Run(
        asked,
        problem,
        number("network", network, 0.1),
        number("apply", apply, 0.01),
    )
    if not any(asked.compute) and not run.network and not run.apply:
        raise LabError("compute=0, network=0 and apply=0: nothing takes any time. Try compute=1.0.")
    with overflowing():
        run.play()
    if not run.version:
        raise none_made(asked.seconds)
    return Updates(
        mode=asked.mode,
        workers=asked.workers,
        problem="" if problem is None else problem.name,
        learning_rate=asked.learning_rate,
        bound=asked.bound,
        backups=asked.backups,
        gradients=tuple(run.done),
        losses=() if run.snapshots is None else run.snapshots.losses(problem),
        kind=modelled(_formula(run)),
        _weights=None if run.snapshots is None else run.snapshots.weights,
    )


@dataclass
class _Flight:
    """A gradient that is being computed or on its way."""

    worker: int
    step: int
    read: int
    weights: Any
    asked: float
    allowed: float
    began: float
    ended: float
    arrived: float


@dataclass
class _Run:
    plan: Plan
    problem: Any
    network: float
    apply: float
    done: list[Gradient] = field(default_factory=list)
    version: int = 0
    made: float = 0.0  # when the present version was there
    free: float = 0.0  # when the server can deal with the next gradient
    weights: Any = None
    snapshots: Snapshots | None = None

    def __post_init__(self) -> None:
        if self.problem is not None:
            self.weights = self.problem.start()
            self.snapshots = Snapshots(self.weights)
        self.steps = [0] * self.plan.workers  # gradients of each that were dealt with
        self.coming: list[tuple[float, int, _Flight]] = []
        self.held: list[tuple[int, float]] = []  # workers that the bound holds back, since when
        self.round: list[_Flight] = []

    def play(self) -> None:
        """From arrival to arrival, until there are as many updates as were asked for."""
        for worker in range(self.plan.workers):
            self._start(worker, 0.0, 0.0)
        if (self.plan.updates or 0) > MOST:
            raise _too_long()
        deal = self._one_of_a_round if self.plan.mode == "sync" else self._at_once
        while not self.plan.over(self.version, self.coming[0][0]):
            deal(heapq.heappop(self.coming)[2])
            if len(self.done) >= MOST:
                raise _too_long()

    def _start(self, worker: int, asked: float, allowed: float) -> None:
        began = allowed + self.network
        ended = began + self.plan.work(worker, self.steps[worker])
        flight = _Flight(
            worker, self.steps[worker], self.version, self.weights, asked, allowed, began, ended,
            ended + self.network,
        )  # fmt: skip
        heapq.heappush(self.coming, (flight.arrived, worker, flight))

    def _at_once(self, flight: _Flight) -> None:
        """Asynchronous: what comes in becomes an update, and its worker goes on."""
        applied = self._dealt_with(flight.arrived)
        self._update([flight], applied)
        self._record(flight, self.version, flight.arrived, applied)
        self.held.append((flight.worker, applied))
        bound, least = self.plan.bound, min(self.steps)
        waiting, self.held = self.held, []
        for worker, asked in waiting:
            if bound is None or self.steps[worker] - least <= bound:
                self._start(worker, asked, applied)
            else:
                self.held.append((worker, asked))

    def _one_of_a_round(self, flight: _Flight) -> None:
        """Synchronous: the mean of a round's gradients is one update; who is late is left out."""
        if flight.read < self.version:
            self._record(flight, None, flight.arrived, flight.arrived)
            self._start(flight.worker, flight.arrived, max(flight.arrived, self.made))
            return
        applied = self._dealt_with(flight.arrived)
        self.round.append(flight)
        if len(self.round) == self.plan.quorum:
            together, self.round = self.round, []
            self._update(together, applied)
            for one in together:
                self._record(one, self.version, flight.arrived, applied)
            for one in together:
                self._start(one.worker, applied, applied)

    def _dealt_with(self, arrived: float) -> float:
        self.free = max(arrived, self.free) + self.apply
        return self.free

    def _update(self, flights: list[_Flight], applied: float) -> None:
        self.version += 1
        self.made = applied
        if self.snapshots is not None:
            total = sum(
                self.problem.gradient(one.weights, one.worker, self.plan.workers, one.step)
                for one in sorted(flights, key=lambda one: one.worker)
            )
            self.weights = self.weights - self.plan.learning_rate * (total / len(flights))
            self.snapshots.add(self.version, applied, self.weights)

    def _record(self, one: _Flight, written: int | None, ready: float, applied: float) -> None:
        self.steps[one.worker] += 1
        began = (one.asked, one.allowed, one.began, one.ended, one.arrived)
        self.done.append(Gradient(one.worker, one.read, written, *began, ready, applied))


def _too_long() -> LabError:
    return LabError(f"This takes more than {MOST:,} gradients. Ask for fewer updates or seconds.")


def _formula(run: _Run) -> str:
    words = f"event by event; a gradient takes {speeds_text(run.plan.compute)}"
    words += f" ± {100 * run.plan.jitter:.0f} %" if run.plan.jitter else ""
    words += f", a message {seconds_text(run.network)}" if run.network else ""
    return words + (f", the server {seconds_text(run.apply)}" if run.apply else "")
