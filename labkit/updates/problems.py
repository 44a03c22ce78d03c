"""Problems to train on: a quadratic loss, which can be calculated, and a small classifier.

A problem keeps its weights in one flat vector; write your own with the four names of `Problem`:

>>> bowl = Quadratic(curvatures=(1.0, 0.1))
>>> bowl.gradient(bowl.start(), worker=0, workers=2, step=0)
array([1. , 0.1])
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from labkit.arguments import number, whole

Vector = NDArray[np.floating[Any]]
CLASSES, FEATURES = 10, 20


class Problem(Protocol):
    """What `simulate` and `train` need of a problem."""

    @property
    def name(self) -> str:
        """The name in titles."""

    def start(self) -> Vector:
        """Returns the weights of version 0, the same at every call."""

    def gradient(self, weights: Vector, worker: int, workers: int, step: int) -> Vector:
        """Returns the gradient of this worker's batch of its own step number `step`."""

    def loss(self, weights: Vector) -> float:
        """Returns the loss on all data."""


@dataclass(frozen=True)
class Quadratic:
    """The loss is half the sum of curvature · weight², with its minimum at zero."""

    curvatures: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        for curvature in self.curvatures:
            number("a curvature", curvature, above=0)

    @property
    def name(self) -> str:
        """The name in titles."""
        return f"quadratic loss, curvature {', '.join(f'{one:g}' for one in self.curvatures)}"

    def start(self) -> Vector:
        """Returns one in each direction."""
        return np.ones(len(self.curvatures))

    def gradient(self, weights: Vector, worker: int, workers: int, step: int) -> Vector:
        """Curvature · weight, for every worker."""
        return np.asarray(self.curvatures) * weights

    def loss(self, weights: Vector) -> float:
        """Half the sum of curvature · weight²."""
        return float(np.sum(np.asarray(self.curvatures) * weights**2) / 2)


class Softmax:
    """Softmax regression: one layer of weights that classifies points in ten clouds."""

    def __init__(self, points: int = 2000, batch: int = 32) -> None:
        points = whole("points", points, at_least=1)
        self.batch = whole("batch", batch, at_least=1, at_most=points)
        draw = np.random.default_rng(0)
        self.labels = draw.integers(0, CLASSES, points)
        centers = draw.normal(0.0, 1.0, (CLASSES, FEATURES))
        x = centers[self.labels] + draw.normal(0.0, 1.0, (points, FEATURES))
        # The bias is the weight of an input that is always one.
        self.x = np.concatenate([x, np.ones((points, 1))], axis=1)
        self.name = f"softmax regression on {points:,} points in {CLASSES} clouds, batch {batch}"

    def __repr__(self) -> str:
        return self.name

    def start(self) -> Vector:
        """All weights zero: every class is equally likely."""
        return np.zeros(self.x.shape[1] * CLASSES)

    def rows(self, worker: int, workers: int, step: int) -> NDArray[np.int_]:
        """Returns the examples of a worker's batch, a shard of the next global batch."""
        first = (step * workers + worker) * self.batch
        return np.arange(first, first + self.batch) % len(self.labels)

    def gradient(self, weights: Vector, worker: int, workers: int, step: int) -> Vector:
        """Returns the mean gradient of this worker's batch."""
        rows = self.rows(worker, workers, step)
        x, labels = self.x[rows], self.labels[rows]
        errors = np.exp(self._log_probabilities(x, weights))
        errors[np.arange(len(rows)), labels] -= 1.0
        gradient: Vector = (x.T @ errors / len(rows)).ravel()
        return gradient

    def loss(self, weights: Vector) -> float:
        """Returns the mean cross-entropy on all points."""
        found = self._log_probabilities(self.x, weights)
        return float(-np.mean(found[np.arange(len(self.x)), self.labels]))

    def _log_probabilities(self, x: Vector, weights: Vector) -> Vector:
        scores = x @ weights.reshape(-1, CLASSES)
        scores = scores - scores.max(axis=1, keepdims=True)
        found: Vector = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
        return found
