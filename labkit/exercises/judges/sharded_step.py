"""A step with sharded state: what each rank must hold after it, as a sum over the gradients.

>>> alone = on_ranks(zero_1, (4,))
>>> alone(lambda comm, weights, gradient, optimizer: optimizer.update(weights, gradient))
Traceback (most recent call last):
labkit.exercises.task.Wrong: On 4 ranks, rank 0's piece 0 (weights 0 to 7) after step 1 is wrong: \
the contribution of rank 0 counts 4 times, and the contribution of rank 1 is missing, and the \
contribution of rank 2 is missing, and the contribution of rank 3 is missing. Reduce-scatter the \
gradients, divide once, and update in place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from labkit.exercises.judges.model_parallel import Array, Case, Piece, on_ranks

__all__ = ["on_ranks", "zero_1", "zero_3"]

RATE, KEPT = 0.25, 0.5
SIZE, LAYERS, LAYER = 29, 3, 24  # a piece has more weights than there are contributions
OWN = "Reduce-scatter the gradients, divide once, and update in place."


class Momentum:
    """An optimizer that is linear in the gradient: what it was given shows in the weights."""

    def __init__(self) -> None:
        self.state: Array = np.zeros(0)

    def update(self, weights: Array, gradient: Array) -> None:
        """Change the weights in place; the state is that of the first call's part."""
        if not self.state.size:
            self.state = np.zeros(np.shape(gradient))
        if not np.shape(weights) == np.shape(gradient) == self.state.shape:
            raise ValueError(
                f"update() got {np.size(weights)} weights, {np.size(gradient)} gradients and has "
                f"the state of {self.state.size}: call it once a step, with the same part of each"
            )
        self.state = KEPT * self.state + gradient
        weights -= RATE * self.state


def _updated(name: str, old: Array, gradients: Array, advice: str = OWN) -> Piece:
    """The old weights after a step with the mean of the gradients, one of each rank."""
    parts = {f"rank {rank}": -RATE * one / len(gradients) for rank, one in enumerate(gradients)}
    return Piece(name, {"the old weights": old, **parts}, advice)


def zero_1(ranks: int) -> Case:
    """(comm, weights, gradient, optimizer), twice → the weights after both, and its state."""
    rng, cut = np.random.default_rng(ranks), np.array_split(np.arange(SIZE), ranks)
    start, gradients = rng.normal(size=SIZE), rng.normal(size=(2, ranks, SIZE))
    # In the second step the momentum is that of the mean gradient of the first.
    pushes = gradients[0], KEPT * gradients[0].mean(axis=0) + gradients[1]

    def two_steps(my_step: Any, comm: Any, weights: Array, first: Array, second: Array) -> Any:
        optimizer = Momentum()
        my_step(comm, weights, first, optimizer)
        before = weights.copy()
        my_step(comm, weights, second, optimizer)
        return [each[piece] for each in (before, weights) for piece in cut] + [optimizer.state]

    def pieces(rank: int) -> list[Piece]:
        found = []
        for step, old in ((0, start), (1, start - RATE * pushes[0].mean(axis=0))):
            for n, piece in enumerate(cut):
                name = f"piece {n} (weights {piece[0]} to {piece[-1]}) after step {step + 1}"
                other = f"Only rank {n} updates it, and sends it to the others."
                advice = OWN if n == rank else other
                found.append(_updated(name, old[piece], pushes[step][:, piece], advice))
        return [*found, Piece("optimizer's state", {"": pushes[1].mean(axis=0)[cut[rank]]})]

    most = 2 * 2 * (ranks - 1) * -(-SIZE // ranks) * 8  # a reduce-scatter and an all-gather a step
    given = [(start, *gradients[:, rank]) for rank in range(ranks)]
    return Case(given, [pieces(rank) for rank in range(ranks)], most, call=two_steps)


def zero_3(ranks: int) -> Case:
    """(comm, parts, gradient_of, optimizers) → this rank's part of each layer."""
    rng, cut = np.random.default_rng(ranks), np.array_split(np.arange(LAYER), ranks)
    layers, noise = rng.normal(size=(LAYERS, LAYER)), rng.normal(size=(ranks, LAYERS, LAYER))
    own = np.arange(1, ranks + 1)[:, None, None] * layers + noise

    def gradient_of(rank: int, n: int, layer: Array) -> Array:
        if np.shape(layer) != (LAYER,):
            raise ValueError(f"layer {n} has {LAYER} weights, got shape {np.shape(layer)}")
        gradient: Array = (rank + 1) * np.asarray(layer) + noise[rank, n]
        return gradient

    def one_step(my_step: Any, comm: Any, parts: Array, gradient: Callable[..., Array]) -> Any:
        my_step(comm, parts, gradient, [Momentum() for _ in range(LAYERS)])
        return list(parts)

    given = [(layers[:, part], partial(gradient_of, rank)) for rank, part in enumerate(cut)]
    pieces = [
        [_updated(f"part of layer {n}", layers[n, p], own[:, n, p]) for n in range(LAYERS)]
        for p in cut
    ]
    most = 2 * (ranks - 1) / ranks * layers.nbytes  # an all-gather and a reduce-scatter a layer
    return Case(given, pieces, most, call=one_step)
