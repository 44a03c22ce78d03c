"""Real training with many workers: the server and each worker are processes."""

import time
from functools import partial
from multiprocessing.connection import wait
from typing import Any

from labkit.kinds import Kind, measured
from labkit.updates.problems import Problem, Softmax
from labkit.updates.record import Gradient, Updates
from labkit.updates.server import ParameterServer
from labkit.updates.settings import Settings, checked_settings
from labkit.updates.worker_processes import Connections, run_with_workers


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


def _serve(kind: Kind, settings: Settings, problem: Problem, connections: Connections) -> Updates:
    server = ParameterServer(settings, problem, lambda arrived: now())
    who = {connection: worker for worker, connection in connections.items()}
    pulls: dict[int, tuple[int, None, float, float]] = {}
    start = time.monotonic()

    def now() -> float:
        return time.monotonic() - start

    def send(worker: int, requested: float) -> None:
        pulls[worker] = (server.version, None, requested, now())
        connections[worker].send(server.weights)

    def receive(connection: Any) -> None:
        began, ended, gradient = connection.recv()
        worker, arrived = who[connection], now()
        times = (began - start, ended - start, arrived, arrived, arrived)
        for other, requested in server.push(Gradient(worker, *pulls[worker], *times), gradient):
            send(other, requested)

    for worker in connections:
        send(worker, now())
    while not settings.is_over(server.version, now()):
        for connection in wait(list(who)):
            if not settings.is_over(server.version, now()):
                receive(connection)
    return server.run(kind)
