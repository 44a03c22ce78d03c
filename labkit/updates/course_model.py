"""The course's own model and its one training step, as a problem to train with many writers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from labkit.kinds import LabError
from labkit.updates.asked import whole
from labkit.updates.problems import batch_of, rows_of

if TYPE_CHECKING:
    from labkit.updates.problems import Vector

__all__ = ["CourseModel"]


class CourseModel:
    """A Keras model, its weights in one vector, and gradients by `labkit.training.training_step`.

    >>> problem = CourseModel(labkit.datasets.mnist(), "dense", batch=64)   # doctest: +SKIP
    >>> labkit.updates.train(problem, workers=2)                            # doctest: +SKIP

    Each process makes the model for itself when it is first used; only images travel.
    """

    modules = ("numpy", "tensorflow", "keras", "labkit.training.step")
    """What its processes need, so that it is loaded once and not in each of them."""

    def __init__(
        self,
        data: Any,
        model: Any = "dense",
        *,
        images: int = 2000,
        batch: int = 64,
        dropout: float | None = None,
        seed: int = 0,
    ) -> None:
        if not hasattr(data, "x_train"):
            raise LabError(f"{data!r} is no data set. Pass labkit.datasets.mnist().")
        images = whole("images", images, 1, 2000)
        self.model, self.dropout, self.seed = model, dropout, whole("seed", seed, 0, 0)
        self.x = data.x_train[:images].copy()
        self.labels = data.y_train[:images].reshape(-1).astype("int32")
        self.batch = batch_of(batch, len(self.x))
        self.classes = int(data.classes)
        kind = model if isinstance(model, str) else getattr(model, "__name__", "your")
        self.name = f"{kind} model on {len(self.x):,} images of {data.label}, batch {self.batch}"
        self._built: Any = None

    def __repr__(self) -> str:
        return self.name

    def __getstate__(self) -> dict[str, Any]:
        """What goes to another process: no TensorFlow."""
        return {**self.__dict__, "_built": None}

    def start(self) -> Vector:
        """The weights that the seed gives."""
        start: Vector = self._here().start
        return start

    def gradient(self, weights: Vector, worker: int, workers: int, step: int) -> Vector:
        """What the course's step would apply for this worker's batch."""
        rows = rows_of(len(self.labels), self.batch, worker, workers, step)
        slope: Vector = self._here().gradient(weights, self.x[rows], self.labels[rows])
        return slope

    def loss(self, weights: Vector) -> float:
        """Mean cross-entropy on all the images."""
        return float(self._here().loss(weights, self.x, self.labels))

    def _here(self) -> Any:
        if self._built is None:
            self._built = _Built(self)
        return self._built


class _Keep:
    """An optimizer for the course's step that keeps the gradients for the server to apply."""

    def __init__(self) -> None:
        self.gradients: Sequence[Any] = ()

    def apply(self, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
        self.gradients = gradients


class _Built:
    """The model in this process, and two TensorFlow functions of a flat vector of weights.

    Each is traced when it is first called: a worker asks for gradients only, the server for losses.
    """

    def __init__(self, problem: CourseModel) -> None:
        import keras
        import numpy as np
        import tensorflow as tf

        from labkit.training.models import build

        keras.utils.set_random_seed(problem.seed)
        shape = problem.x.shape[1:]
        self.batch = problem.batch
        dropout = problem.dropout
        if dropout is None and isinstance(problem.model, str):
            dropout = 0.0
        self.model = build(problem.model, shape, problem.classes, dropout)
        self.variables = self.model.trainable_variables
        self.start = np.concatenate([variable.numpy().ravel() for variable in self.variables])
        self.given = (
            tf.TensorSpec((len(self.start),), tf.float32),
            tf.TensorSpec((None, *shape), tf.uint8),
            tf.TensorSpec((None,), tf.int32),
        )

    @cached_property
    def gradient(self) -> Any:
        """The course's step, with an optimizer that hands its gradients out."""
        import tensorflow as tf

        from labkit.training.inputs import scale_images
        from labkit.training.step import training_step

        def gradient(flat: Any, images: Any, labels: Any) -> Any:
            self._set(flat)
            keep = _Keep()
            training_step(self.model, keep, scale_images(images), labels, self.batch, list)
            return tf.concat([tf.reshape(one, [-1]) for one in keep.gradients], axis=0)

        return self._traced(gradient)

    @cached_property
    def loss(self) -> Any:
        """The mean loss, without dropout."""
        import tensorflow as tf

        from labkit.training.inputs import scale_images
        from labkit.training.step import loss_per_image

        def loss(flat: Any, images: Any, labels: Any) -> Any:
            self._set(flat)
            logits = self.model(scale_images(images), training=False)
            return tf.reduce_mean(loss_per_image(labels, logits))

        return self._traced(loss)

    def _set(self, flat: Any) -> None:
        import tensorflow as tf

        sizes = [math.prod(variable.shape) for variable in self.variables]
        for variable, part in zip(self.variables, tf.split(flat, sizes), strict=True):
            variable.assign(tf.reshape(part, variable.shape))

    def _traced(self, function: Any) -> Any:
        import tensorflow as tf

        traced = tf.function(function, autograph=False).get_concrete_function(*self.given)
        return lambda *asked: traced(*(tf.convert_to_tensor(one) for one in asked)).numpy()
