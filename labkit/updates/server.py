"""The process that holds the weights: which gradients make an update, and which workers wait.

The simulator and the real server share it; they differ only in the clock.
"""

from collections.abc import Callable
from dataclasses import replace

from labkit.arguments import whole
from labkit.kinds import Kind, LabError
from labkit.updates.problems import Problem, Vector
from labkit.updates.record import Gradient, Loss, Updates
from labkit.updates.settings import Settings

MOST_LOSSES = 256  # of more versions, evenly spaced ones


class ParameterServer:
    """The weights, their version, and the record of all gradients."""

    def __init__(
        self, settings: Settings, problem: Problem | None, applied_at: Callable[[float], float]
    ) -> None:
        """`applied_at(arrived)`: when the server has handled a gradient that arrived then."""
        self.settings, self.problem = settings, problem
        self.weights = None if problem is None else problem.start()
        self.steps = [0] * settings.workers
        self.gradients: list[Gradient] = []
        self._applied_at = applied_at
        self._versions: list[tuple[float, Vector | None]] = [(0.0, self.weights)]
        self._round: list[tuple[Gradient, Vector | None]] = []
        self._held: list[tuple[int, float]] = []

    @property
    def version(self) -> int:
        """How many updates were made."""
        return len(self._versions) - 1

    @property
    def updated(self) -> float:
        """When this version was made."""
        return self._versions[-1][0]

    def push(self, one: Gradient, gradient: Vector | None) -> list[tuple[int, float]]:
        """Take a gradient. Returns which workers get weights now, and when each requested them."""
        synchronous = self.settings.mode == "sync"
        if synchronous and one.read < self.version:  # a backup: its update is already made
            self._record(one, None, one.arrived, one.arrived)
            return [(one.worker, one.arrived)]
        self._round.append((one, gradient))
        needed = self.settings.workers - self.settings.backups if synchronous else 1
        if len(self._round) < needed:
            self._applied_at(one.arrived)
            return []
        together, self._round = sorted(self._round, key=lambda pair: pair[0].worker), []
        if self.weights is not None:  # new ones: earlier versions are kept
            mean = sum(gradient for _, gradient in together if gradient is not None) / needed
            self.weights = self.weights - self.settings.learning_rate * mean
        applied = self._applied_at(one.arrived)
        self._versions.append((applied, self.weights))
        for each, _ in together:
            self._record(each, self.version, one.arrived, applied)
            self._held.append((each.worker, applied))
        bound, slowest = self.settings.bound, min(self.steps)
        free = [h for h in self._held if bound is None or self.steps[h[0]] - slowest <= bound]
        self._held = [h for h in self._held if h not in free]
        return free

    def _record(self, one: Gradient, written: int | None, ready: float, applied: float) -> None:
        self.steps[one.worker] += 1
        self.gradients.append(replace(one, written=written, ready=ready, applied=applied))

    def run(self, kind: Kind) -> Updates:
        """Returns the record of the whole run, with the losses."""
        if not self.version:
            raise LabError(
                f"No update was made within seconds={self.settings.seconds}. Give more seconds, "
                "or updates=10."
            )
        problem = "" if self.problem is None else self.problem.name
        gradients, losses = tuple(self.gradients), tuple(self._losses())
        return Updates(self.settings, problem, gradients, losses, kind, self.weights)

    def _losses(self) -> list[Loss]:
        if self.problem is None:
            return []
        stride = 1
        while self.version // stride >= MOST_LOSSES:
            stride *= 2
        chosen = {*range(0, self.version, stride), self.version}
        return [
            Loss(version, seconds, self.problem.loss(weights))
            for version, (seconds, weights) in enumerate(self._versions)
            if version in chosen and weights is not None
        ]


def staleness_bound(workers: int, bound: int) -> int:
    """Returns the largest staleness that `mode="ssp"` lets through.

    While a worker takes one step, any other goes from at most `bound` steps behind it to at most
    `bound` + 1 ahead.

    >>> staleness_bound(4, bound=0), staleness_bound(4, bound=2)
    (3, 15)
    """
    return (whole("workers", workers, at_least=1) - 1) * (2 * whole("bound", bound) + 1)
