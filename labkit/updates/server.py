"""Rank 0 of a real training: it holds the weights, and deals with gradients as they come.

It decides in the same way as the simulator: at once, in rounds, or within a bound.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from typing import Any

from labkit.kinds import LabError
from labkit.updates.asked import Plan
from labkit.updates.channel import listen, meet
from labkit.updates.record import Gradient, Loss
from labkit.updates.snapshots import Snapshots, overflowing

__all__ = ["Served", "serve"]


@dataclass(frozen=True)
class Served:
    """What the server knows in the end."""

    gradients: tuple[Gradient, ...]
    losses: tuple[Loss, ...]
    weights: Any


def serve(plan: Plan, problem: Any, address: str, key: bytes) -> Served:
    """Meet all workers, start them together, and update until the plan is done."""
    weights = problem.start()  # may take long; who calls in the meantime is not kept waiting
    server = listen(address)
    callers: dict[int, Any] = {}
    try:
        while len(callers) < plan.workers:
            caller = meet(server, key)
            if caller is not None:
                callers[caller.recv()] = caller  # it has also computed once, to be warm
        rounds = _Rounds(plan, callers, weights)
        with overflowing():
            rounds.play()
        for caller in callers.values():
            _see_off(caller)
    finally:
        for caller in callers.values():
            caller.close()
        server.close()
    # Losses are worked out when nobody is waiting any more.
    losses = rounds.snapshots.losses(problem)
    return Served(tuple(rounds.done), losses, rounds.snapshots.weights)


class _Rounds:
    """The weights, their version, and who is to be answered when."""

    def __init__(self, plan: Plan, callers: dict[int, Any], weights: Any) -> None:
        self.plan, self.callers, self.weights = plan, callers, weights
        self.who = {caller: worker for worker, caller in callers.items()}
        self.snapshots = Snapshots(weights)
        self.version = 0
        self.began = time.monotonic()
        self.steps = dict.fromkeys(callers, 0)
        self.asked = dict.fromkeys(callers, 0.0)
        self.allowed = dict.fromkeys(callers, 0.0)
        self.read = dict.fromkeys(callers, 0)
        self.held: list[int] = []
        self.round: list[tuple[Gradient, Any]] = []
        self.done: list[Gradient] = []

    def now(self) -> float:
        return time.monotonic() - self.began

    def play(self) -> None:
        for worker in sorted(self.callers):
            self.asked[worker] = self.now()  # one after the other is the server's work, no waiting
            self._send(worker)
        while not self.plan.over(self.version, self.now()):
            for caller in wait(list(self.who)):
                if not self.plan.over(self.version, self.now()):
                    self._hear(caller)

    def _hear(self, caller: Any) -> None:
        worker = self.who[caller]
        try:
            began, ended, slope = caller.recv()
        except (EOFError, OSError):
            self._without(caller)
            return
        arrived = self.now()
        one = Gradient(
            worker, self.read[worker], None, self.asked[worker], self.allowed[worker],
            began - self.began, ended - self.began, arrived, arrived, arrived,
        )  # fmt: skip
        if self.plan.mode == "sync":
            self._one_of_a_round(one, slope)
        else:
            self._at_once(one, slope)

    def _without(self, caller: Any) -> None:
        """A worker has left. Its rank has failed, and the cluster says how and ends the run."""
        worker = self.who.pop(caller)
        if not self.who:
            raise LabError(
                f"Worker {worker} was the last one, and has left after {self.steps[worker]} "
                f"gradients. Look at what rank {worker + 1} says."
            )

    def _at_once(self, one: Gradient, slope: Any) -> None:
        self._update([slope])
        applied = self._record(one, self.version, one.arrived)
        self.asked[one.worker] = applied
        self.held.append(one.worker)
        bound, least = self.plan.bound, min(self.steps.values())
        free = [w for w in self.held if bound is None or self.steps[w] - least <= bound]
        self.held = [w for w in self.held if w not in free]
        for worker in free:
            self._send(worker)

    def _one_of_a_round(self, one: Gradient, slope: Any) -> None:
        if one.read < self.version:
            self.asked[one.worker] = self._record(one, None, one.arrived)
            self._send(one.worker)
            return
        self.round.append((one, slope))
        if len(self.round) < self.plan.quorum:
            return
        together, self.round = sorted(self.round, key=lambda pair: pair[0].worker), []
        self._update([each for _, each in together])
        for each, _ in together:
            self.asked[each.worker] = self._record(each, self.version, one.arrived)
        for each, _ in together:
            self._send(each.worker)

    def _update(self, slopes: list[Any]) -> None:
        """New weights, never the old ones changed: snapshots hold them."""
        self.weights = self.weights - self.plan.learning_rate * (sum(slopes) / len(slopes))
        self.version += 1
        self.snapshots.add(self.version, self.now(), self.weights)

    def _record(self, one: Gradient, written: int | None, ready: float) -> float:
        applied = self.now()
        self.done.append(replace(one, written=written, ready=ready, applied=applied))
        self.steps[one.worker] += 1
        return applied

    def _send(self, worker: int) -> None:
        self.allowed[worker] = self.now()
        self.read[worker] = self.version
        _tell(self.callers[worker], self.weights)


def _see_off(caller: Any) -> None:
    """It is over: take what is still on its way, until the worker has hung up."""
    _tell(caller, None)
    with suppress(EOFError, OSError):
        while True:
            caller.recv_bytes()


def _tell(caller: Any, what: Any) -> None:
    # Who has left sends nothing more either, and that is noticed.
    with suppress(OSError):
        caller.send(what)
