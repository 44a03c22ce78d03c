"""The judges of a step with sharded state: run, and compared with the serial step piece by piece.

>>> zero_1(lambda comm, weights, gradient, optimizer: optimizer.update(weights, gradient))
Traceback (most recent call last):
labkit.exercises.task.Wrong: On 4 ranks, rank 0, piece 0 (weights 0 to 7), step 1: it was updated \
without the gradients of rank 1, 2, 3. Reduce-scatter the gradients first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from labkit.exercises.judges.answers import TIME_LIMIT, judged
from labkit.exercises.task import Wrong
from labkit.kinds import LabError, bytes_text

__all__ = ["zero_1", "zero_3"]

RATE, KEPT = 0.25, 0.5
SIZE, LAYERS, LAYER = 29, 3, 24  # a rank has more weights than there are ranks
Array = Any


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


def _run(answer: Callable[..., Any], program: Any, inputs: list[Array]) -> Any:
    """The trace of a program that calls the answer."""
    from labkit import collectives

    program.func = answer  # errors name the lines of the answer
    try:
        return collectives.run(program, inputs, timeout=TIME_LIMIT)
    except LabError as fault:
        raise Wrong(f"On {len(inputs)} ranks: {fault}") from None


def _same(where: str, found: Array, old: Array, gradients: Array, from_owner: str = "") -> None:
    """Refuse a piece that was not updated with the mean; `gradients` holds one of each rank."""
    wrong = ~np.isclose(found, old - RATE * gradients.mean(axis=0), rtol=1e-4, atol=1e-5)
    if not wrong.any():
        return
    ranks, update = len(gradients), (old - found) / RATE
    # The optimizer is linear: how much of each rank's gradient is in the update?
    share = np.linalg.lstsq(gradients.T, update)[0]
    without = [str(rank) for rank in range(ranks) if abs(share[rank]) < 1e-3]
    if not np.allclose(share @ gradients, update, rtol=1e-3, atol=1e-3):
        words = f"{wrong.sum()} of its {wrong.size} weights are not those of a serial step"
    elif len(without) == ranks:
        words = f"it still holds the old weights. {from_owner or 'Update it in place'}"
    elif without:
        which = f"gradient{'s' * (len(without) > 1)} of rank {', '.join(without)}"
        todo = from_owner or "Reduce-scatter the gradients first"
        words = f"it was updated without the {which}. {todo}"
    else:
        times = f"{ranks * share.mean():.3g} × the mean gradient"
        words = f"it was updated with {times}. Divide the sum by {ranks}, once"
    raise Wrong(f"On {ranks} ranks, {where}: {words}.")


def _right_but(trace: Any, most: float, enough: str) -> None:
    if (busiest := max(trace.bytes_sent)) > most:
        raise Wrong(
            f"It trains right. But on {trace.ranks} ranks the busiest sends {bytes_text(busiest)}; "
            f"{bytes_text(most)} are enough: {enough}."
        )


def on_ranks(judge: Callable[[int, Any], None]) -> Callable[[Any], None]:
    """`judge(ranks, answer)` on several numbers of ranks."""

    def judge_all(answer: Any) -> None:
        for ranks in (4, 2, 3, 1):
            judge(ranks, answer)

    return judged(judge_all, 3 * TIME_LIMIT)


@on_ranks
def zero_1(ranks: int, my_step: Callable[..., Any]) -> None:
    """A function of (comm, weights, gradient, optimizer): two steps."""
    rng = np.random.default_rng(ranks)
    start, gradients = rng.normal(size=SIZE), rng.normal(size=(2, ranks, SIZE))
    optimizers, first = [Momentum() for _ in range(ranks)], np.zeros((ranks, SIZE))

    def two_steps(comm: Any, weights: Array) -> None:
        rank = comm.Get_rank()
        my_step(comm, weights, gradients[0, rank].copy(), optimizers[rank])
        first[rank] = weights
        my_step(comm, weights, gradients[1, rank].copy(), optimizers[rank])

    trace = _run(my_step, two_steps, [start] * ranks)
    second = KEPT * gradients[0].mean(axis=0) + gradients[1]
    for step, found, old, own in (
        (1, first, start, gradients[0]),
        (2, trace.outputs, start - RATE * gradients[0].mean(axis=0), second),
    ):
        for rank in range(ranks):
            for n, piece in enumerate(np.array_split(np.arange(SIZE), ranks)):
                from_owner = f"Only rank {n} must update it, and send it to the others"
                where = f"rank {rank}, piece {n} (weights {piece[0]} to {piece[-1]}), step {step}"
                _same(
                    where,
                    found[rank][piece],
                    old[piece],
                    own[:, piece],
                    "" if rank == n else from_owner,
                )
    held = max(one.state.size for one in optimizers)
    if held > -(-SIZE // ranks):
        raise Wrong(
            f"It trains right. But on {ranks} ranks an optimizer has the state of {held} of "
            f"{SIZE} weights. Each rank updates its own piece only."
        )
    most = 2 * 2 * (ranks - 1) * -(-SIZE // ranks) * 8
    _right_but(trace, most, "a reduce-scatter and an all-gather in each of two steps")


@on_ranks
def zero_3(ranks: int, my_step: Callable[..., Any]) -> None:
    """A function of (comm, parts, gradient_of, optimizers): one step."""
    rng = np.random.default_rng(ranks)
    layers, noise = rng.normal(size=(LAYERS, LAYER)), rng.normal(size=(ranks, LAYERS, LAYER))
    optimizers = [[Momentum() for _ in range(LAYERS)] for _ in range(ranks)]

    def one_step(comm: Any, parts: Array) -> None:
        rank = comm.Get_rank()

        def gradient_of(n: int, layer: Array) -> Array:
            if np.shape(layer) != (LAYER,):
                raise ValueError(f"layer {n} has {LAYER} weights, got shape {np.shape(layer)}")
            return (rank + 1) * np.asarray(layer) + noise[rank, n]

        my_step(comm, parts, gradient_of, optimizers[rank])

    cut = np.array_split(np.arange(LAYER), ranks)
    trace = _run(my_step, one_step, [layers[:, cut[rank]] for rank in range(ranks)])
    own = np.arange(1, ranks + 1)[:, None, None] * layers + noise
    for rank, parts in enumerate(trace.outputs):
        for n in range(LAYERS):
            where = f"rank {rank}, its part of layer {n}"
            _same(where, parts[n], layers[n, cut[rank]], own[:, n, cut[rank]])
    most = 2 * (ranks - 1) / ranks * layers.nbytes
    _right_but(trace, most, "an all-gather and a reduce-scatter for each layer")
