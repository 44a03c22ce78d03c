"""Rules of thumb about late gradients, as functions, so that a run can be held against them."""

from __future__ import annotations

from labkit.updates.asked import whole

__all__ = ["implicit_momentum", "staleness_bound", "usual_staleness"]


def usual_staleness(workers: int) -> int:
    """The mean staleness of workers that never wait: one update for each of the others.

    Every update makes the gradients of all other workers older by one, whoever is quick or slow;
    so the mean is the same with a straggler, and only the spread is not.

    >>> usual_staleness(4)
    3
    """
    return whole("workers", workers, 1, 4) - 1


def staleness_bound(workers: int, bound: int) -> int:
    """The largest staleness that a bound lets through.

    While a worker takes one step, any other may go from `bound` steps behind it to `bound` + 1
    ahead.

    >>> staleness_bound(4, bound=0), staleness_bound(4, bound=2)
    (3, 15)
    """
    return (whole("workers", workers, 1, 4) - 1) * (2 * whole("bound", bound, 0, 2) + 1)


def implicit_momentum(workers: int) -> float:
    """Asynchronous updates with exponential times behave, on average, as if with this momentum.

    Mitliagkas, Zhang, Hadjis and Ré (2016): 1 - 1/workers, and a step of a share 1/workers.

    >>> implicit_momentum(4)
    0.75
    """
    return 1 - 1 / whole("workers", workers, 1, 4)
