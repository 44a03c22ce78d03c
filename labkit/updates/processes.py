"""Real training with many writers: the server and the workers are processes of a cluster."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from labkit.kinds import LabError, measured, seconds_text
from labkit.updates.asked import Plan, none_made, number, plan, speeds_text
from labkit.updates.problems import Softmax, is_problem
from labkit.updates.record import Updates

__all__ = ["MOST", "room_for", "train"]

MOST = 63  # workers: with the server they are as many ranks as a cluster takes


def train(
    problem: Any = None,
    *,
    workers: int = 3,
    mode: str = "async",
    updates: int | None = None,
    seconds: float | None = None,
    compute: float = 0.01,
    slow: Mapping[int, float] | None = None,
    jitter: float = 0.0,
    bound: int | None = None,
    backups: int = 0,
    learning_rate: float = 0.1,
    seed: int = 0,
    deadline: float = 60.0,
) -> Updates:
    """Train for real: one process holds the weights, each worker is a process of its own.

    >>> train(workers=3, mode="async", slow={2: 4.0})       # doctest: +SKIP

    The keywords are those of `simulate`. A gradient takes at least `compute` seconds (times the
    factor in `slow`): what computing does not need is slept, so that two cores can be many workers.
    """
    asked = plan(
        mode=mode, workers=workers, updates=updates, seconds=seconds, compute=compute, slow=slow,
        bound=bound, backups=backups, learning_rate=learning_rate, seed=seed, jitter=jitter,
    )  # fmt: skip
    deadline = number("deadline", deadline, 60.0, above=True)
    if asked.seconds is not None and asked.seconds >= deadline:
        raise LabError(
            f"{seconds_text(asked.seconds)} of training do not fit into a deadline of "
            f"{seconds_text(deadline)}. Take deadline={asked.seconds + 30:.0f}."
        )
    room_for(asked.workers)
    problem = Softmax() if problem is None else is_problem(problem)

    from labkit.cluster import Cluster

    modules = getattr(problem, "modules", ("numpy",))
    with Cluster(ranks=asked.workers + 1, engine="local", preload=modules) as ranks:
        key = secrets.token_bytes(32)
        served, *_ = ranks.run(_part, asked, problem, key, deadline=deadline)
    if not served.gradients:
        raise none_made(asked.seconds)
    return Updates(
        mode=asked.mode,
        workers=asked.workers,
        problem=problem.name,
        learning_rate=asked.learning_rate,
        bound=asked.bound,
        backups=asked.backups,
        gradients=served.gradients,
        losses=served.losses,
        kind=measured(_where(asked)),
        _weights=served.weights,
    )


def room_for(workers: int) -> None:
    """Real workers are processes, and a machine has room for some."""
    if workers > MOST:
        raise LabError(
            f"workers={workers}: each is a process, and at most {MOST} are started. "
            "labkit.updates.simulate takes more."
        )


def _part(rank: int, asked: Plan, problem: Any, key: bytes) -> Any:
    """What each rank does: the first one serves, the others work."""
    from labkit.cluster import this_rank
    from labkit.updates.server import serve
    from labkit.updates.worker import work

    address = this_rank().addresses[0]
    if rank == 0:
        return serve(asked, problem, address, key)
    return work(asked, problem, rank - 1, address, key)


def _where(asked: Plan) -> str:
    from labkit.hardware import machine_text

    many = "1 worker" if asked.workers == 1 else f"{asked.workers} workers"
    words = f"{machine_text()}; {many} and a server, each a process"
    if any(asked.compute):
        words += f"; a gradient takes at least {speeds_text(asked.compute)}"
    return words
