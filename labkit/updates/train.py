"""Real training with many workers: the server and each worker are processes."""

import time
from functools import partial
from typing import Any

from labkit.kinds import Kind, measured
from labkit.updates.problems import Problem, Softmax
from labkit.updates.record import Gradient, Updates
from labkit.updates.server import ParameterServer
from labkit.updates.settings import Settings, checked_settings
from labkit.updates.worker_processes import next_gradient, run_with_workers


def train(
    problem: Problem | None = None,
    *,
    workers: int = 3,
    compute: float = 0.01,
    timeout: float = 60.0,
    **more: Any,
) -> Updates:
    """Train with one process that holds the weights and one for each worker.

    >>> train(workers=3, mode="async", slow={2: 4.0})       # doctest: +SKIP

    More keywords are those of `simulate`, without `network` and `apply`. A gradient takes at least
    `compute` seconds (times the factor in `slow`): the worker sleeps for what it does not need.
    """
    from labkit.hardware import machine_text

    settings = checked_settings(workers=workers, compute=compute, **more)
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
