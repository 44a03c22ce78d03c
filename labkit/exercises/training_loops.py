"""Judges of training loops in one process: under replicas, accumulated, clipped, resumed.

The first layer of the model writes down which images reach which replica. So the judge can tell
what the loop did with the data; what it did with the gradients is told by the weights, which are
compared with those of the serial program and of known mistakes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from labkit.exercises import serial
from labkit.exercises.judges import function
from labkit.exercises.serial import BATCH, CLOSE, REPLICAS, STEPS, Gradients, Rule, clip, total
from labkit.exercises.task import Wrong
from labkit.hardware import replicas
from labkit.hardware.devices import import_tensorflow

__all__ = [
    "Models", "accumulation", "check_images", "check_losses", "check_weights", "clipping",
    "make_layers", "resuming", "returned", "training_loop",
]  # fmt: skip

TIME_LIMIT = 120.0  # seconds; TensorFlow traces for some of them
CLOSE_ADAM = 2e-4  # Adam divides by the size of the gradient: rounding of a small one is enlarged
MICRO_BATCHES = 4
INTERRUPTED_AFTER = (2, 4)

Seen = Sequence[tuple[int, tuple[int, ...], bool]]  # replica, images, training


def training_loop() -> Callable[[Any], None]:
    """A function of (strategy, make_model, dataset, global_batch) that returns (model, losses).

    It must train one pass with plain SGD, rate RATE, the mean loss of each global batch.
    """

    def examine(my_train: Callable[..., Any]) -> None:
        strategy = replicas(REPLICAS).strategy()
        made = Models(strategy)
        with _exact(made):
            result = my_train(strategy, made.make, _dataset(), BATCH)
        model, losses = returned(result, made.models)
        shares = check_images(made.seen)
        check_weights(_copies(strategy, model))
        check_losses(losses, shares)

    return function(examine, seconds=TIME_LIMIT)


def accumulation() -> Callable[[Any], None]:
    """A function of (make_model, dataset, batch, micro_batches) that returns the model."""

    def examine(my_train: Callable[..., Any]) -> None:
        made = _on_one_device()
        with _exact(made):
            model = _model(my_train(made.make, _dataset(), BATCH, MICRO_BATCHES), made.models)
        _check_micro_batches(made.seen)
        serial.compare(_numpy(model), serial.train()[0], _accumulation_mistakes())

    return function(examine, seconds=TIME_LIMIT)


def clipping() -> Callable[[Any], None]:
    """A function of (strategy, make_model, dataset, global_batch, clip_norm): returns the model."""

    def examine(my_train: Callable[..., Any]) -> None:
        strategy = replicas(REPLICAS).strategy()
        made, limit = Models(strategy), _limit()
        with _exact(made):
            result = my_train(strategy, made.make, _dataset(), BATCH, limit)
        model = _model(result, made.models)
        parts = [list(share.values()) for share in check_images(made.seen)]
        right, _ = serial.train(lambda each: clip(total(each), limit), parts)
        rules = _clipping_mistakes(limit)
        mistakes = {says: serial.train(serial.scaled(by))[0] for by, says in FACTORS.items()}

    serial.compare(_first_copies(copies), serial.train()[0], mistakes)


def check_losses(losses: Any, shares: Sequence[dict[int, Any]]) -> None:
    """The loss of each step must be the mean over the global batch."""
    import numpy as np

    try:
        found = np.array([float(loss) for loss in losses])
    except (TypeError, ValueError):
        raise Wrong(
            "The loss of a step is no number: strategy.run returns one value for each replica. "
            "Reduce them: strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)."
        ) from None
    if len(found) != STEPS:
        raise Wrong(f"You returned {len(found)} losses; there are {STEPS} steps.")
    _, each = serial.train()
    right = each.mean(axis=1)

    def is_(expected: Any) -> bool:
        return bool(np.allclose(found, expected, rtol=1e-3, atol=1e-4))

    if is_(right):
        return
    for replica in shares[0]:
        part = np.array([each.ravel()[list(share[replica])].sum() for share in shares]) / BATCH
        if is_(part) or is_(part * REPLICAS):
            raise Wrong(
                "These are the losses of one replica's share. Reduce them over the replicas: "
                "strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)."
            )
    for factor in (REPLICAS, 1 / REPLICAS, BATCH):
        if is_(factor * right):
            raise Wrong(
                f"The losses are {factor:g} times those of the serial program. Each replica's part "
                "is divided by global_batch already, so the parts are summed, not averaged."
            )
    if is_(np.cumsum(right) / np.arange(1, STEPS + 1)):
        raise Wrong("These are means over all steps so far. Return the loss of each step alone.")
    raise Wrong(
        f"The first loss is {found[0]:.4f}; in the serial program it is {right[0]:.4f}. "
        "Return the mean loss over the global batch, before the update of the step."
    )


def _accumulation_mistakes() -> dict[str, list[Any]]:
    size, k = BATCH // MICRO_BATCHES, MICRO_BATCHES
    parts = [
        [range(start + part, start + part + size) for part in range(0, BATCH, size)]
        for start in range(0, BATCH * STEPS, BATCH)
    ]
    one_by_one = [[part] for each in parts for part in each]
    kept: Gradients = []

    def never_reset(each: list[Gradients]) -> Gradients:
        kept[:] = total([*([list(kept)] if kept else []), *each])
        return list(kept)

    rules: dict[str, tuple[Rule, Any]] = {
        f"The gradients are {k} times too large: each is the gradient of the mean over one "
        f"micro-batch, and {k} of them are summed. Divide their sum by micro_batches.": (
            serial.scaled(k), parts),
        f"The gradients are {k} times too small: they are divided by micro_batches twice.": (
            serial.scaled(1 / k), parts),
        "Only the last micro-batch of each batch reached the weights: add its gradients to those "
        "of the others.": (lambda each: serial.scaled(k)(each[-1:]), parts),
        "Only the last micro-batch of each batch reached the weights, as a part of the "
        "mean: add its gradients to those of the others.": (lambda each: each[-1], parts),
        "It updated the weights after each micro-batch. Sum the gradients first, then update once "
        "for each batch.": (serial.scaled(k), one_by_one),
        "It updated the weights after each micro-batch, with a part of the gradients. Sum them "
        "first, then update once for each batch.": (total, one_by_one),
        "The sum of the gradients is never reset: set it to zero after each update.": (
            never_reset, parts),
        "The loss is a sum, not a mean: divide it by the number of images in the batch.": (
            serial.scaled(BATCH), parts),
        NO_UPDATE: (serial.scaled(0), parts),
    }  # fmt: skip
    return {says: serial.train(*run)[0] for says, run in rules.items()}


def _limit() -> float:
    """With it some steps are clipped and some are not, of the sum and of a replica's share."""
    import numpy as np

    norms: list[float] = []

    def noted(each: list[Gradients]) -> Gradients:
        norms.append(serial.norm(total(each)))
        return total(each)

    serial.train(noted)
    return round(float(np.quantile(norms, 0.3)), 3)


def _clipping_mistakes(limit: float) -> dict[str, Rule]:
    import numpy as np

    n = REPLICAS
    first_sum = "Sum the gradients over the replicas first (all-reduce), and clip the sum."
    return {
        "The gradients are not clipped.": total,
        f"Each replica clips its own gradients before they are summed. {first_sum}": (
            lambda each: total([clip(one, limit) for one in each])
        ),
        "Each replica clips the gradients of its own mean loss, and then they are summed. "
        f"{first_sum}": lambda each: total([clip(one, limit, n) for one in each]),
        "The gradients of each variable are clipped by their own norm. The global norm is one "
        "number over all variables: tf.clip_by_global_norm.": (
            lambda each: [clip([one], limit)[0] for one in total(each)]
        ),
        "The gradients are clipped by value, not by their global norm.": (
            lambda each: [np.clip(one, -limit, limit) for one in total(each)]
        ),
        f"The clipped gradients are {n} times too large: they are summed over the replicas again. "
        "optimizer.apply sums once more: divide them by strategy.num_replicas_in_sync.": (
            lambda each: [n * one for one in clip(total(each), limit)]
        ),
        f"The gradients are {n} times too large before they are clipped: each replica takes the "
        "mean loss of its own share. Divide the summed loss by global_batch.": (
            lambda each: clip(total(each), limit, n)
        ),
        NO_UPDATE: serial.scaled(0),
    }


def _resuming_mistakes() -> dict[str, list[Any]]:
    again = partial(serial.train_with_adam, INTERRUPTED_AFTER)
    return {
        "The weights were restored, and the state of the optimizer was not. Adam's moments and its "
        "step counter belong into the checkpoint.": again(state_kept=False),
        "The weights were not restored: they began anew.": again(weights_kept=False),
        "Nothing was restored: weights and optimizer began anew.": (
            again(weights_kept=False, state_kept=False)
        ),
    }
