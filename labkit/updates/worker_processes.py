"""Worker processes that compute gradients, connected to the process that holds the weights.

Rank 0 of a local cluster serves; every other rank receives weights, answers with the gradient, and
ends when it receives None. They meet at a Unix socket in a folder that only this user can enter.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Client, Connection, Listener
from typing import Any, TypeVar

import numpy as np

from labkit.updates.problems import Problem
from labkit.updates.settings import Settings

T = TypeVar("T")
Connections = dict[int, "Connection[Any, Any]"]
Serve = Callable[[Settings, Problem, Connections], T]


def run_with_workers(serve: Serve[T], settings: Settings, problem: Problem, timeout: float) -> T:
    """Start the workers, then call serve(settings, problem, connections) in a process of its own.

    A worker's connection takes weights with `send`, and `recv` gives (began, ended, gradient) with
    times of `time.monotonic`.
    """
    from labkit.cluster import Cluster

    with (
        tempfile.TemporaryDirectory(prefix="labkit-") as folder,
        Cluster(ranks=settings.workers + 1) as ranks,
    ):
        run = ranks.start(_rank, serve, settings, problem, f"{folder}/server")
        outcome = run.finish(timeout)
        outcome.raise_errors()
        return outcome.results[0]  # type: ignore[no-any-return]


@np.errstate(over="ignore", invalid="ignore")  # the loss shows that training diverges
def _rank(rank: int, serve: Serve[T], settings: Settings, problem: Problem, path: str) -> T | None:
    if rank > 0:
        _work(settings, problem, rank - 1, path)
        return None
    connections: Connections = {}
    with Listener(path, "AF_UNIX", backlog=settings.workers) as listener:
        while len(connections) < settings.workers:
            connection = listener.accept()
            connections[connection.recv()] = connection
    result = serve(settings, problem, dict(sorted(connections.items())))
    for connection in connections.values():
        with suppress(EOFError, OSError):
            connection.send(None)
            while True:  # read what is on its way, so that the worker can finish sending it
                connection.recv_bytes()
    return result


def _work(settings: Settings, problem: Problem, worker: int, path: str) -> None:
    # The first call loads and traces: that is no part of a training's speed.
    problem.gradient(problem.start(), worker, settings.workers, 0)
    step = 0
    with _connect(path) as server:
        server.send(worker)
        while (weights := server.recv()) is not None:
            began = time.monotonic()
            gradient = problem.gradient(weights, worker, settings.workers, step)
            # Sleep for the rest of the time, so that two cores can be many workers, one of them
            # slow. A message now means the end.
            rest = settings.compute_seconds(worker, step) - (time.monotonic() - began)
            if server.poll(max(0.0, rest)):
                return
            server.send((began, time.monotonic(), gradient))
            step += 1


def _connect(path: str) -> Connection[Any, Any]:
    while True:  # until rank 0 listens; the cluster's timeout ends it
        try:
            return Client(path, "AF_UNIX")
        except (FileNotFoundError, ConnectionRefusedError):
            time.sleep(0.01)
