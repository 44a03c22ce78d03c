"""Servers that students write: of lecture 30 for one process, of lecture 34 for two hosts.

The first is judged with simulated workers and run with real ones, the second over links.

>>> print(run_with_processes(my_server, workers=3, slow={2: 3.0}))          # doctest: +SKIP
3 workers and your server: 60 pushes, staleness 1.93 on average and 4 at most, ...
"""

import heapq
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np

from labkit.collectives.communicator import lent_to_mpi4py
from labkit.exercises.judges.answers import function, numbers_in
from labkit.exercises.judges.over_links import HEADERS, over_links
from labkit.exercises.task import Wrong
from labkit.kinds import LabError, measured

# Seconds that each simulated worker needs for each of its gradients, again and again.
TIMES = [[[1.0]], [[1.0], [1.3]], [[1.0, 1.4], [0.7], [3.1]]]
SERVERS, RANKS, STEPS, ELEMENTS, RATE = 2, 5, 4, 60_001, 0.1  # of the training on two servers


@dataclass
class ServerMessage:
    """What a worker sends: it asks for the weights ("pull"), or brings a gradient ("push")."""

    worker: int
    kind: str
    gradient: Any = None
    version: int = -1  # of the weights that the gradient was computed from
    answer: tuple[Any, Any] | None = field(default=None, repr=False)

    def reply(self, weights: Any, version: int) -> None:
        """Send the weights, and how many updates they have seen, to the worker that asked."""
        if self.kind == "push":
            raise Wrong("Only a pull is answered. After a push, a worker pulls when it is ready.")
        self.answer = (np.array(weights, dtype=float), version)


class Simulated:
    """Workers that compute at the same time, by a simulated clock, each on data of its own.

    Of two pushes the first worker pulls late: after the second one.
    """

    def __init__(self, times: list[list[float]]) -> None:
        self.now, self.times = 0.0, [cycle(one) for one in times]
        self.most_held = min(1, len(times) - 1)
        self.queue: list[tuple[float, int, Any]] = []

    def begin(self, worker: int, weights: Any) -> None:
        """Let one worker compute a gradient of these weights."""
        gradient = [1.0, 2.0] * (weights - np.array([worker + 1.0, -worker]))
        heapq.heappush(self.queue, (self.now + next(self.times[worker]), worker, gradient))

    def next_done(self) -> tuple[int, Any]:
        """The next worker that is done, and its gradient."""
        self.now, worker, gradient = heapq.heappop(self.queue)
        return worker, gradient


def serve(
    server: Callable[..., Any], team: Any, workers: int, start: Any, rate: float, pushes: int
) -> tuple[Any, list[int]]:
    """Run a server until so many pushes; check every reply, and what it returns."""
    weights, staleness, read = start.copy(), list[int](), [0] * workers
    fault = ""

    def pull(worker: int) -> Iterator[ServerMessage]:
        nonlocal fault
        message, version = ServerMessage(worker, "pull"), len(staleness)
        yield message
        given, sent = message.answer or (None, None)
        if message.answer is None:
            fault = "got no answer."
        elif not _equal(given, weights):
            fault = f"got {_row(given)}; the gradients, applied one by one, make {_row(weights)}."
        elif sent != version:
            fault = f"received version {sent!r}; the version is the number of pushes so far."
        if fault:
            fault = f"worker {worker} asked for version {version} of the weights and {fault}"
        else:
            read[worker] = version
            team.begin(worker, weights)

    def inbox() -> Iterator[ServerMessage]:
        nonlocal weights
        due = [*range(workers)]
        while True:
            while not fault and len(due) > min(team.most_held, len(staleness) % 2):
                yield from pull(due.pop(0))
            if fault or len(staleness) == pushes:
                return
            worker, gradient = team.next_done()
            staleness.append(len(staleness) - read[worker])
            weights = weights - rate * gradient
            yield ServerMessage(worker, "push", gradient, read[worker])
            due.append(worker)

    result = server(inbox(), start.copy(), rate)
    if len(staleness) < pushes:
        fault = fault or f"it ended at push {len(staleness)} of {pushes}."
    if fault := fault or _wrong_result(result, weights, staleness):
        raise Wrong(f"With {workers} worker{'s' * (workers > 1)}, {fault}")
    return weights, staleness


def _wrong_result(result: Any, weights: Any, staleness: list[int]) -> str:
    if not (isinstance(result, tuple | list) and len(result) == 2):
        return f"it returned {result!r}. Let it return weights, staleness."
    if not _equal(result[0], weights):
        return f"it returned other weights than {_row(weights)}, the last."
    given = [*map(int, numbers_in(result[1], "weights and a list of whole numbers"))]
    return f"the staleness is {staleness}; yours is {given}." if given != staleness else ""


def examine_server(server: Callable[..., Any]) -> None:
    """Run a server with one, two and three simulated workers."""
    for times in TIMES:
        serve(server, Simulated(times), len(times), np.array([4.0, 4.0]), len(times) / 10, 9)


class Connected:
    """Workers on other ranks, which compute at the same time for real."""

    most_held = 0

    def __init__(self, comm: Any) -> None:
        self.comm = comm

    def begin(self, worker: int, weights: Any) -> None:
        """Let one worker compute a gradient of these weights."""
        self.comm.send(weights, dest=worker + 1)

    def next_done(self) -> tuple[int, Any]:
        """The next worker that is done, and its gradient."""
        from labkit.updates.worker_processes import next_gradient

        worker, (_began, _ended, gradient) = next_gradient(self.comm)
        return worker, gradient


def run_with_processes(
    server: Callable[..., Any],
    *,
    workers: int = 3,
    updates: int = 60,
    compute: float = 0.010,
    slow: Mapping[int, float] | None = None,
) -> str:
    """Run a right server with a process for each worker, and say how stale its gradients were."""
    from labkit.hardware import machine_text
    from labkit.updates import Softmax
    from labkit.updates.settings import Settings
    from labkit.updates.worker_processes import run_with_workers

    try:
        function(examine_server)(server)
    except LabError:
        raise LabError("Your server is not right yet: its workers would never end.") from None
    settings = Settings(workers=workers, updates=updates, compute=compute, slow=slow)
    problem = Softmax()
    weights, staleness = run_with_workers(partial(_serve, server), settings, problem, 60.0)
    loss = f"loss {problem.loss(problem.start()):.3g} → {problem.loss(weights):.3g}"
    return (
        f"{workers} workers and your server: {updates} pushes, staleness "
        f"{sum(staleness) / updates:.2f} on average and {max(staleness)} at most, {loss}\n"
        f"{measured(f'{machine_text()}; {workers} workers and a server, each a process')}"
    )


def _serve(server: Callable[..., Any], settings: Any, problem: Any, comm: Any) -> Any:
    return serve(server, Connected(comm), settings.workers, problem.start(), 1.0, settings.updates)


def _equal(given: Any, weights: Any) -> bool:
    return np.shape(given) == weights.shape and np.allclose(given, weights)


def _row(values: Any) -> str:
    return "[" + ", ".join(f"{one:.3g}" for one in values.ravel()[:4]) + "]"


# Two servers that share the weights.


def two_servers(told: Callable[..., None], my_training: Callable[..., Any]) -> Any:
    """A function of (comm, weights, gradient, steps): on a server it returns its half."""
    weights = np.random.default_rng(0).normal(size=ELEMENTS).astype(np.float32)

    yours = partial(_on_rank, my_training)
    given = [weights] * RANKS
    [found] = over_links(
        {"": yours}, given, answer=my_training, rounds=1, link="200 Mbit/s"
    ).values()
    picture = found.traffic.picture()
    # What a server's link carries in one direction: its half, in each step and for each worker.
    half = STEPS * (RANKS - SERVERS) * weights.nbytes / 2
    carried = [[one / half for one in found.traffic.bytes(f"host {at}")] for at in range(SERVERS)]
    halves = [np.asarray(result) for (result,) in found.results[:SERVERS]]
    rights = np.array_split(weights, SERVERS)

    def ends(rule: Callable[[list[Any]], Any]) -> bool:
        serial = weights
        for _ in range(STEPS):
            gradients = [_gradient(rank, serial) for rank in range(SERVERS, RANKS)]
            serial = serial - np.float32(RATE) * rule(gradients)
        return bool(np.allclose(np.concatenate(halves), serial, rtol=1e-4, atol=1e-4))

    told(
        picture,
        carried=carried,
        idle=[server for server in range(SERVERS) if max(carried[server]) < 0.1],
        full=[server for server in range(SERVERS) if max(carried[server]) > HEADERS],
        # Workers may add up their gradients on the way: then one pulls and pushes for all.
        few=[at for at in range(SERVERS) if min(carried[at]) < 1 / (RANKS - SERVERS)],
        no_half=[
            at
            for at, (half, right) in enumerate(zip(halves, rights, strict=True))
            if half.shape != right.shape or half.dtype.kind != "f"
        ],
        sizes=[len(right) for right in rights],
        ends=ends,
    )
    return picture


def _on_rank(my_training: Callable[..., Any], comm: Any, weights: Any) -> tuple[Any]:
    rank = comm.Get_rank()

    def gradient(weights: Any) -> Any:
        if rank < SERVERS:
            raise LabError(f"Rank {rank} is a server: gradient(weights) is for the workers.")
        if np.shape(weights) != (ELEMENTS,):
            raise LabError(f"gradient needs all {ELEMENTS} weights, got {np.size(weights)}.")
        return _gradient(rank, weights)

    with lent_to_mpi4py(my_training, COMM_WORLD=comm):
        return (my_training(comm, weights.copy(), gradient, STEPS),)


def _gradient(rank: int, weights: Any) -> Any:
    slope, offset = np.random.default_rng(rank).uniform(size=(2, ELEMENTS)).astype(np.float32)
    return slope * np.asarray(weights, np.float32) - offset
