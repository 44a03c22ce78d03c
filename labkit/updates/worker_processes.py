"""Worker processes that compute gradients, and the one that holds the weights: rank 0.

Worker w is rank w + 1. It receives weights, and sends (began, ended, gradient), with times of
`time.monotonic`.
"""

import time
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from labkit.arguments import number
from labkit.updates.problems import Problem
from labkit.updates.settings import Settings

T = TypeVar("T")
Serve = Callable[[Settings, Problem, Any], T]


def run_with_workers(serve: Serve[T], settings: Settings, problem: Problem, timeout: float) -> T:
    """Run serve(settings, problem, comm) on rank 0. Returns its result within `timeout` seconds."""
    from labkit.cluster import Cluster

    timeout = number("timeout", timeout, above=0) + (settings.seconds or 0.0)
    with Cluster(ranks=settings.workers + 1) as ranks:
        return ranks.run(training, serve, settings, problem, timeout=timeout, until={0})[0]  # type: ignore[no-any-return]


@np.errstate(over="ignore", invalid="ignore")  # the loss shows that training diverges
def training(rank: int, serve: Serve[T], settings: Settings, problem: Problem) -> T | None:
    """Run on every rank; errors name this function."""
    from labkit.cluster import communicator

    comm, worker = communicator(), rank - 1
    # The first call loads and traces: that is no part of a training's speed.
    problem.gradient(problem.start(), max(worker, 0), settings.workers, 0)
    comm.Barrier()
    if rank == 0:
        return serve(settings, problem, comm)
    step = 0
    while True:
        weights, began = comm.recv(source=0), time.monotonic()
        gradient = problem.gradient(weights, worker, settings.workers, step)
        # Sleep for the rest of the time, so that two cores can be many workers, one of them slow.
        rest = settings.compute_seconds(worker, step) - (time.monotonic() - began)
        time.sleep(max(0.0, rest))
        comm.send((began, time.monotonic(), gradient), dest=0)
        step += 1


def next_gradient(comm: Any) -> tuple[int, tuple[float, float, Any]]:
    """Returns on rank 0 the next worker whose gradient has come, and what it sent."""
    from labkit.collectives.communicator import Status

    found = comm.recv(status=(status := Status()))
    return status.Get_source() - 1, found
