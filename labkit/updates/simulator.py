"""Training with many workers, simulated event by event: nothing is timed, everything is exact."""

import heapq
from collections.abc import Mapping

import numpy as np

from labkit.arguments import number
from labkit.kinds import LabError, modelled, seconds_text
from labkit.updates.problems import Problem, Vector
from labkit.updates.record import Gradient, Updates
from labkit.updates.server import ParameterServer
from labkit.updates.settings import Settings

MOST_GRADIENTS = 100_000


@np.errstate(over="ignore", invalid="ignore")  # the loss shows that training diverges
def simulate(
    problem: Problem | None = None,
    *,
    workers: int = 4,
    mode: str = "async",
    updates: int | None = None,
    seconds: float | None = None,
    compute: float = 1.0,
    slow: Mapping[int, float] | None = None,
    jitter: float = 0.0,
    network: float = 0.0,
    apply: float = 0.0,
    bound: int | None = None,
    backups: int = 0,
    learning_rate: float = 0.1,
    seed: int = 0,
) -> Updates:
    """Simulate training. Returns which worker reads which version, who waits, and the loss.

    >>> simulate(workers=4, slow={3: 4.0}, mode="sync", updates=10).seconds
    40.0

    mode: "sync" waits for all workers (but the last `backups`), "async" for none, "ssp" (stale
    synchronous parallel) for those that are more than `bound` steps behind.
    compute: seconds for a gradient; slow={3: 4.0} makes worker 3 four times as slow; jitter is the
    standard deviation as a share of that (1.0: exponential). network: seconds for a message, one
    way. apply: seconds for a gradient at the server. It ends after `updates` (100) or `seconds`.
    """
    settings = Settings(
        workers=workers, mode=mode, updates=updates, seconds=seconds, compute=compute, slow=slow,
        jitter=jitter, bound=bound, backups=backups, learning_rate=learning_rate, seed=seed,
    )  # fmt: skip
    network = number("network", network, at_least=0)
    apply = number("apply", apply, at_least=0)
    idle_from = 0.0

    def applied_at(arrived: float) -> float:
        nonlocal idle_from
        idle_from = max(arrived, idle_from) + apply
        return idle_from

    server = ParameterServer(settings, problem, applied_at)
    arrivals: list[tuple[float, int, Gradient, Vector | None]] = []

    def pull(worker: int, requested: float, pulled: float) -> None:
        step, weights = server.steps[worker], server.weights
        began = pulled + network
        ended = began + settings.compute_seconds(worker, step)
        arrived = ended + network
        one = Gradient(
            worker, server.version, None, requested, pulled, began, ended, arrived, arrived, arrived
        )
        gradient = None
        if problem is not None and weights is not None:
            gradient = problem.gradient(weights, worker, workers, step)
        heapq.heappush(arrivals, (arrived, worker, one, gradient))

    for worker in range(workers):
        pull(worker, 0.0, 0.0)
    while not settings.is_over(server.version, arrivals[0][0]):
        arrived, _, one, gradient = heapq.heappop(arrivals)
        for worker, requested in server.push(one, gradient):
            pull(worker, requested, max(arrived, server.updated))
        if len(server.gradients) >= MOST_GRADIENTS:
            raise LabError(
                f"simulate stops after {MOST_GRADIENTS:,} gradients: take fewer updates or seconds."
            )
    formula = f"event by event; a gradient takes {settings.compute_text()}"
    formula += f", a message {seconds_text(network)}" if network else ""
    formula += f", the server {seconds_text(apply)}" if apply else ""
    return server.run(modelled(formula))
