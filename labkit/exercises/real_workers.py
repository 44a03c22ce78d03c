"""The server of lecture 08 that a student has written, with workers that are real processes.

>>> put_to_work(my_server, workers=3, slow={2: 3.0})                    # doctest: +SKIP
3 workers and your server: 60 pushes in 452 ms, staleness 1.93 on average ...
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from labkit.exercises.delayed import Message
from labkit.exercises.task import check
from labkit.kinds import Kind, LabError, measured, seconds_text

__all__ = ["AtWork", "put_to_work"]


@dataclass(frozen=True, repr=False)
class AtWork:
    """What came of a server's work."""

    workers: int
    seconds: float
    staleness: tuple[int, ...]
    losses: tuple[float, float]
    kind: Kind

    def __repr__(self) -> str:
        mean = sum(self.staleness) / len(self.staleness)
        return (
            f"{self.workers} workers and your server: {len(self.staleness)} pushes in "
            f"{seconds_text(self.seconds)}, staleness {mean:.2f} on average and "
            f"{max(self.staleness)} at most, loss {self.losses[0]:.3g} → {self.losses[1]:.3g}\n"
            f"{self.kind}"
        )


def put_to_work(
    server: Callable[..., Any],
    *,
    workers: int = 3,
    updates: int = 60,
    compute: float = 0.010,
    slow: Mapping[int, float] | None = None,
    learning_rate: float = 1.0,
    deadline: float = 60.0,
) -> AtWork:
    """Run a server in one process, and its workers in one each; it must be right before."""
    from labkit.cluster import Cluster
    from labkit.hardware import machine_text
    from labkit.updates.asked import plan
    from labkit.updates.problems import Softmax
    from labkit.updates.processes import room_for

    if not check("08.my_server", server):
        raise LabError("Your server is not finished yet: its workers would wait for ever.")
    asked = plan(
        mode="async", workers=workers, updates=updates, seconds=None, compute=compute, slow=slow,
        bound=None, backups=0, learning_rate=learning_rate, seed=0, jitter=0.0,
    )  # fmt: skip
    room_for(asked.workers)
    problem, key = Softmax(), secrets.token_bytes(32)
    with Cluster(ranks=asked.workers + 1, engine="local") as ranks:
        done, *_ = ranks.run(_part, server, asked, problem, key, deadline=deadline)
    weights, staleness, seconds = done
    losses = (problem.loss(problem.start()), problem.loss(weights))
    where = measured(f"{machine_text()}; {asked.workers} workers and a server, each a process")
    return AtWork(asked.workers, seconds, tuple(staleness), losses, where)


def _part(rank: int, server: Callable[..., Any], asked: Any, problem: Any, key: bytes) -> Any:
    """Rank 0 runs the student's server; every other rank is one of labkit's workers."""
    from labkit.cluster import this_rank
    from labkit.updates.channel import listen, meet
    from labkit.updates.worker import work

    address = this_rank().addresses[0]
    if rank:
        return work(asked, problem, rank - 1, address, key)
    door = listen(address)
    callers: dict[int, Any] = {}
    try:
        while len(callers) < asked.workers:
            caller = meet(door, key)
            if caller is not None:
                callers[caller.recv()] = caller
        began = time.monotonic()
        inbox = _inbox(callers, asked.updates)
        weights, staleness = server(inbox, problem.start(), asked.learning_rate)
        seconds = time.monotonic() - began
        for caller in callers.values():
            _see_off(caller)
    finally:
        for caller in callers.values():
            caller.close()
        door.close()
    return weights, staleness, seconds


def _see_off(caller: Any) -> None:
    """It is over: take what is still on its way, until the worker has hung up."""
    with suppress(EOFError, OSError):
        caller.send(None)
        while True:
            caller.recv_bytes()


def _inbox(callers: Mapping[int, Any], pushes: int) -> Iterator[Message]:
    """What the workers send, as it comes; a push is followed by the next pull of its worker."""
    from multiprocessing.connection import wait

    who = {caller: worker for worker, caller in callers.items()}
    versions: dict[int, int] = {}

    def pull(worker: int) -> Iterator[Message]:
        message = Message(worker, "pull")
        yield message
        if message.answer is None:
            raise LabError(f"Worker {worker} asked for the weights and got no answer.")
        weights, versions[worker] = message.answer
        callers[worker].send(weights)

    for worker in sorted(callers):
        yield from pull(worker)
    while True:
        ready: list[Any] = wait(list(who))
        for caller in ready:
            worker = who[caller]
            *_, gradient = caller.recv()
            yield Message(worker, "push", gradient, versions[worker])
            pushes -= 1
            if not pushes:
                return
            yield from pull(worker)
