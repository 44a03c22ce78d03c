"""Small problems to train on: a bowl whose behaviour can be calculated, and a classifier.

A problem has weights in one flat vector, and says what a worker's gradient and the loss are:

>>> bowl = Quadratic(curvatures=(1.0, 0.1))
>>> bowl.gradient(bowl.start(), worker=0, workers=2, step=0)
array([1. , 0.1])
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from labkit.kinds import LabError
from labkit.updates.asked import number, whole

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector = NDArray[np.floating[Any]]

__all__ = ["Problem", "Quadratic", "Softmax", "batch_of", "is_problem", "rows_of"]


class Problem(Protocol):
    """What `simulate` and `train` ask of a problem; write your own with these four."""

    @property
    def name(self) -> str:
        """What a title calls it."""

    def start(self) -> Vector:
        """The weights of version 0, the same at every call."""

    def gradient(self, weights: Vector, worker: int, workers: int, step: int) -> Vector:
        """The gradient of the batch that this worker takes for its own step number `step`."""

    def loss(self, weights: Vector) -> float:
        """The loss on all the data."""


def is_problem(thing: Any) -> Any:
    """The problem itself, if it is one."""
    missing = [n for n in ("name", "start", "gradient", "loss") if not hasattr(thing, n)]
    if missing or isinstance(thing, type):
        raise LabError(
            f"{thing!r} is no problem to train on. Take labkit.updates.Quadratic(), "
            "labkit.updates.Softmax() or labkit.updates.CourseModel(data)."
        )
    return thing


def batch_of(batch: Any, examples: int) -> int:
    """A batch, which cannot be more than there is.

    >>> batch_of(32, examples=2000)
    32
    """
    size = whole("batch", batch, 1, 32)
    if size > examples:
        raise LabError(
            f"batch={size:,} is more than all the {examples:,} examples. "
            "Take a smaller one, or more examples with images=."
        )
    return size


def rows_of(examples: int, batch: int, worker: int, workers: int, step: int) -> Any:
    """Which examples a worker takes: all workers together take a whole global batch at each step.

    >>> rows_of(10, 2, worker=1, workers=2, step=2).tolist()
    [0, 1]
    """
    import numpy as np

    first = (step * workers + worker) * batch
    return np.arange(first, first + batch) % examples


@dataclass(frozen=True)
class Quadratic:
    """A bowl: the loss is half the sum of curvature · weight². The lowest point is at zero.

    With noise, every gradient is off by normal random numbers of that size, as batches are.
    """

    curvatures: tuple[float, ...] = (1.0,)
    noise: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        given: Any = self.curvatures
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise LabError(
                f"curvatures={given!r} is not one number for each direction. Write them "
                "in brackets, such as Quadratic(curvatures=(1.0, 0.1))."
            )
        object.__setattr__(self, "curvatures", tuple(given))
        for curvature in self.curvatures:
            number("curvature", curvature, 1.0, above=True)
        if not self.curvatures:
            raise LabError("A bowl needs a curvature, such as Quadratic(curvatures=(1.0, 0.1)).")
        number("noise", self.noise, 0.1)
        whole("seed", self.seed, 0, 0)

    @property
    def name(self) -> str:
        """What a title calls it."""
        steep = ", ".join(f"{one:g}" for one in self.curvatures)
        many = "curvature" if len(self.curvatures) == 1 else "curvatures"
        return f"a bowl of {many} {steep}" + (f" with noise {self.noise:g}" if self.noise else "")

    def start(self) -> Vector:
        """One in each direction."""
        import numpy as np

        return np.ones(len(self.curvatures))

    def gradient(self, weights: Vector, worker: int, workers: int, step: int) -> Vector:
        """Curvature · weight, and the noise of this worker's step."""
        import numpy as np

        exact: Vector = np.asarray(self.curvatures) * weights
        if self.noise:
            draw = np.random.default_rng((self.seed, worker, step))
            exact = exact + self.noise * draw.standard_normal(len(weights))
        return exact

    def loss(self, weights: Vector) -> float:
        """Half the sum of curvature · weight²."""
        import numpy as np

        return float(0.5 * np.sum(np.asarray(self.curvatures) * weights**2))


class Softmax:
    """Softmax regression: one layer of weights from pixels to classes, and cross-entropy.

    >>> Softmax()                                            # points in clouds, made here
    softmax regression on 2,000 points in 10 clouds, batch 32
    >>> Softmax(labkit.datasets.mnist())                     # doctest: +SKIP
    """

    def __init__(self, data: Any = None, *, images: int = 2000, batch: int = 32, seed: int = 0):
        import numpy as np

        images = whole("images", images, 1, 2000)
        self.seed = whole("seed", seed, 0, 0)
        draw = np.random.default_rng(self.seed)
        if data is None:
            self.classes, what = 10, f"{images:,} points in 10 clouds"
            self.labels = draw.integers(0, self.classes, images)
            middles = draw.normal(0.0, 1.0, (self.classes, 20))
            x = middles[self.labels] + draw.normal(0.0, 1.0, (images, 20))
        else:
            if not hasattr(data, "x_train"):
                raise LabError(f"{data!r} is no data set. Pass labkit.datasets.mnist(), or none.")
            self.labels = data.y_train[:images].reshape(-1).astype(int)
            x = data.x_train[:images].reshape(len(self.labels), -1) / 255.0
            self.classes, what = int(data.classes), f"{len(x):,} images of {data.label}"
        self.batch = batch_of(batch, len(x))
        # The bias is a weight of an input that is always one.
        self.x = np.concatenate([x, np.ones((len(x), 1))], axis=1)
        self.name = f"softmax regression on {what}, batch {self.batch}"

    def __repr__(self) -> str:
        return self.name

    def start(self) -> Vector:
        """All weights zero: every class is as likely as any other."""
        import numpy as np

        return np.zeros(self.x.shape[1] * self.classes)

    def gradient(self, weights: Vector, worker: int, workers: int, step: int) -> Vector:
        """The mean gradient of this worker's batch."""
        import numpy as np

        rows = rows_of(len(self.labels), self.batch, worker, workers, step)
        x, labels = self.x[rows], self.labels[rows]
        chances = self._chances(x, weights)
        chances[np.arange(len(rows)), labels] -= 1.0
        slope: Vector = (x.T @ chances / len(rows)).ravel()
        return slope

    def loss(self, weights: Vector) -> float:
        """Mean cross-entropy on all points."""
        import numpy as np

        scores = self.x @ weights.reshape(-1, self.classes)
        top = scores.max(axis=1)
        total = top + np.log(np.exp(scores - top[:, None]).sum(axis=1))
        return float(np.mean(total - scores[np.arange(len(scores)), self.labels]))

    def accuracy(self, weights: Vector) -> float:
        """The share of points whose class gets the highest score."""
        scores = self.x @ weights.reshape(-1, self.classes)
        return float((scores.argmax(axis=1) == self.labels).mean())

    def _chances(self, x: Vector, weights: Vector) -> Vector:
        import numpy as np

        scores = x @ weights.reshape(-1, self.classes)
        exponents = np.exp(scores - scores.max(axis=1, keepdims=True))
        chances: Vector = exponents / exponents.sum(axis=1, keepdims=True)
        return chances
