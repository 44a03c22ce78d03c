"""Real training with many workers: the server and each worker are processes."""

import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from labkit.kinds import Kind, measured
from labkit.updates.problems import Problem, Softmax
from labkit.updates.record import Gradient, Updates
from labkit.updates.server import ParameterServer
from labkit.updates.settings import Settings
from labkit.updates.worker_processes import next_gradient, run_with_workers


def train(
    problem: Problem | None = None,
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
    timeout: float = 60.0,
) -> Updates:
    """Train with one process that holds the weights and one for each worker.

    >>> train(workers=3, mode="async", slow={2: 4.0})       # doctest: +SKIP

    The keywords are those of `simulate`. A gradient takes at least `compute` seconds (times the
    factor in `slow`): the worker sleeps for what it does not need.
    After `seconds` and `timeout` seconds more a training that has not ended is stopped.
    """
    from labkit.hardware import machine_text

    settings = Settings(
        workers, compute, mode, updates, seconds, slow, jitter, bound, backups, learning_rate, seed
    )
    problem = Softmax() if problem is None else problem
    count = "1 worker" if workers == 1 else f"{workers} workers"
    kind = measured(
        f"{machine_text()}; {count} and a server, each a process; "
        f"a gradient takes at least {settings.compute_text()}"
    )
    return run_with_workers(partial(_serve, kind), settings, problem, timeout)


def _serve(kind: Kind, settings: Settings, problem: Problem, comm: Any) -> Updates:
    server = ParameterServer(settings, problem, lambda arrived: now())
    pulls: dict[int, tuple[int, None, float, float]] = {}
    start = time.monotonic()

    def now() -> float:
        return time.monotonic() - start

    def send(worker: int, requested: float) -> None:
        pulls[worker] = (server.version, None, requested, now())
        comm.send(server.weights, dest=worker + 1)

    for worker in range(settings.workers):
        send(worker, now())
    while True:
        worker, (began, ended, gradient) = next_gradient(comm)
        arrived = now()
        if settings.is_over(server.version, arrived):
            return server.run(kind)
        times = (began - start, ended - start, arrived, arrived, arrived)
        for other, requested in server.push(Gradient(worker, *pulls[worker], *times), gradient):
            send(other, requested)
