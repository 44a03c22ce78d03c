"""Judges of custom training loops: gradient accumulation, gradient clipping, resuming.

Each runs the student's loop, follows the images, and compares the weights with those of the serial
program and of known mistakes. The mistakes are rules: what a wrong loop would do with the gradients
of the parts of a batch.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from labkit.exercises.judges import function
from labkit.exercises.task import Wrong
from labkit.exercises.training_loop import (
    BATCH,
    CLOSE,
    RATE,
    REPLICAS,
    STEPS,
    TIME_LIMIT,
    Models,
    check_images,
    make_data,
)
from labkit.hardware import replicas
from labkit.hardware.devices import import_tensorflow

__all__ = ["MICRO_BATCHES", "accumulation", "clipping", "resuming"]

MICRO_BATCHES = 4
ADAM_RATE = 0.01
CLOSE_ADAM = 2e-4  # Adam divides by the size of the gradient: rounding of a small one is enlarged
PREEMPTED_AFTER = (3, 6)

Gradients = list[Any]
# The gradients of the parts of a step, each of the loss summed over the part and divided by BATCH.
Rule = Callable[[list[Gradients]], Gradients]


class Preempted(BaseException):
    """The scheduler ends the job: no `except Exception` stops it."""


def accumulation() -> Callable[[Any], None]:
    """A function of (make_model, dataset, batch, micro_batches) that returns the model."""
    return function(_examine_accumulation, seconds=TIME_LIMIT)


def clipping() -> Callable[[Any], None]:
    """A function of (strategy, make_model, dataset, global_batch, clip_norm): returns the model."""
    return function(_examine_clipping, seconds=TIME_LIMIT)


def resuming() -> Callable[[Any], None]:
    """A function of (make_model, dataset, batch, folder, after_step) that returns the model."""
    return function(_examine_resuming, seconds=TIME_LIMIT)


# Gradient accumulation.


def _examine_accumulation(train: Callable[..., Any]) -> None:
    replicas(REPLICAS)  # split the devices before TensorFlow runs: other tasks need them
    tf = import_tensorflow()
    images, labels = make_data()
    made = Models(tf.distribute.get_strategy())
    dataset = tf.data.Dataset.from_tensor_slices((images, labels))
    model = _model(train(made.make, dataset, BATCH, MICRO_BATCHES), made)
    _check_micro_batches(made.seen)
    size = BATCH // MICRO_BATCHES
    parts = [
        [range(start + part, start + part + size) for part in range(0, BATCH, size)]
        for start in range(0, BATCH * STEPS, BATCH)
    ]
    program = Program(made.make_plain, images, labels, parts)
    weights = [variable.numpy() for variable in model.trainable_variables]
    total: Gradients = []

    def never_reset(each: list[Gradients]) -> Gradients:
        total[:] = _sum([*([total] if total else []), *each])
        return list(total)

    k = MICRO_BATCHES
    mistakes: dict[str, Callable[[], list[Any]]] = {
        f"The gradients are {k} times too large: each is the gradient of the mean over one "
        f"micro-batch, and {k} of them are summed. Divide their sum by micro_batches.": (
            lambda: program.run(lambda each: _times(k, _sum(each)))
        ),
        f"The gradients are {k} times too small: they are divided by micro_batches twice.": (
            lambda: program.run(lambda each: _times(1 / k, _sum(each)))
        ),
        "Only the last micro-batch of each batch reached the weights: add its gradients to those "
        "of the others.": lambda: program.run(lambda each: _times(k, each[-1])),
        "Only the last micro-batch of each batch reached the weights, and its gradients were "
        "divided by micro_batches.": lambda: program.run(lambda each: each[-1]),
        "It updated the weights after each micro-batch. Sum the gradients first, then update once "
        "for each batch.": lambda: program.run_at_once(float(k)),
        "It updated the weights after each micro-batch, with a part of the gradients. Sum them "
        "first, then update once for each batch.": lambda: program.run_at_once(1.0),
        "The sum of the gradients is never reset: set it to zero after each update.": (
            lambda: program.run(never_reset)
        ),
        "The loss is a sum, not a mean: divide it by the number of images in the batch.": (
            lambda: program.run(lambda each: _times(BATCH, _sum(each)))
        ),
        "The weights have not changed: apply the gradients.": (
            lambda: program.run(lambda each: _times(0.0, each[0]))
        ),
    }
    _compare(weights, program.run(_sum), mistakes)


def _check_micro_batches(seen: Sequence[tuple[int, tuple[int, ...], bool]]) -> None:
    trained = [images for _, images, training in seen if training]
    if not trained:
        raise Wrong("The model was never called with training=True.")
    size = BATCH // MICRO_BATCHES
    if (largest := max(map(len, trained))) > size:
        raise Wrong(
            f"The model got {largest} images in one call. The batch has {BATCH} images and "
            f"{MICRO_BATCHES} micro-batches: at most {size} images may be on the device at once."
        )
    order = [image for images in trained for image in images]
    for step in range(STEPS):
        found = sorted(order[step * BATCH : (step + 1) * BATCH])
        if found != list(range(step * BATCH, (step + 1) * BATCH)):
            raise Wrong(
                f"The {BATCH} images of step {step + 1} are not those of the serial program: each "
                "image of the dataset is used once, in its order."
            )
    if len(order) > BATCH * STEPS:
        raise Wrong(f"It used {len(order)} images; one pass has {BATCH * STEPS}.")


# Gradient clipping under replicas.


def _examine_clipping(train: Callable[..., Any]) -> None:
    tf = import_tensorflow()
    import numpy as np

    strategy = replicas(REPLICAS).strategy()
    images, labels = make_data()
    made = Models(strategy)
    dataset = tf.data.Dataset.from_tensor_slices((images, labels))
    whole = [[range(start, start + BATCH)] for start in range(0, BATCH * STEPS, BATCH)]
    norms: list[float] = []

    def noted(each: list[Gradients]) -> Gradients:
        norms.append(float(tf.linalg.global_norm(_sum(each))))
        return _sum(each)

    Program(made.make_plain, images, labels, whole).run(noted)
    limit = round(float(np.median(norms)), 3)  # so that some steps are clipped, and some are not
    tf.config.experimental.enable_tensor_float_32_execution(False)
    try:
        result = train(strategy, made.make, dataset, BATCH, limit)
    except Wrong:
        if made.models:
            made.check_scope()
        raise
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(True)
    made.check_scope()
    model = _model(result, made)
    shares = check_images(made.seen)
    parts = [[share[replica] for replica in sorted(share)] for share in shares]
    _compare(
        _copies(strategy, model),
        (program := Program(made.make_plain, images, labels, parts)).run(
            lambda each: _clip(_sum(each), limit)
        ),
        _clipping_mistakes(program, limit),
    )


def _clipping_mistakes(program: Program, limit: float) -> dict[str, Callable[[], list[Any]]]:
    tf = import_tensorflow()
    n = REPLICAS
    first_sum = "Sum the gradients over the replicas first (all-reduce), and clip the sum."
    rules: dict[str, Rule] = {
        "The gradients are not clipped.": _sum,
        f"Each replica clips its own gradients before they are summed. {first_sum}": (
            lambda each: _sum([_clip(one, limit) for one in each])
        ),
        "Each replica clips the gradients of its own mean loss, and then they are summed. "
        f"{first_sum}": lambda each: _sum([_clip(_times(n, one), limit) for one in each]),
        "Each replica clips the gradients of its own mean loss, and then they are averaged. "
        f"{first_sum}": (
            lambda each: _times(1 / n, _sum([_clip(_times(n, one), limit) for one in each]))
        ),
        "Each replica clips by its share of clip_norm, before the gradients are summed. "
        f"{first_sum}": lambda each: _sum([_clip(one, limit / n) for one in each]),
        "The gradients of each variable are clipped by their own norm. The global norm is one "
        "number over all variables: tf.clip_by_global_norm.": (
            lambda each: [tf.clip_by_norm(one, limit) for one in _sum(each)]
        ),
        "The gradients are clipped by value, not by their global norm.": (
            lambda each: [tf.clip_by_value(one, -limit, limit) for one in _sum(each)]
        ),
        f"The clipped gradients are {n} times too large: they are summed over the replicas again. "
        "optimizer.apply sums once more: divide them by strategy.num_replicas_in_sync.": (
            lambda each: _times(n, _clip(_sum(each), limit))
        ),
        f"The gradients are {n} times too large before they are clipped: each replica takes the "
        "mean loss of its own share. Divide the summed loss by global_batch.": (
            lambda each: _clip(_times(n, _sum(each)), limit)
        ),
        f"The clipped gradients are {n} times too small: they were divided by the number of "
        "replicas, and not summed again.": (lambda each: _times(1 / n, _clip(_sum(each), limit))),
        "The weights have not changed: apply the gradients with the optimizer.": (
            lambda each: _times(0.0, each[0])
        ),
    }
    return {says: (lambda rule=rule: program.run(rule)) for says, rule in rules.items()}  # type: ignore[misc]


def _clip(gradients: Gradients, limit: float) -> Gradients:
    clipped: Gradients = import_tensorflow().clip_by_global_norm(gradients, limit)[0]
    return clipped


# Resuming.


def _examine_resuming(train: Callable[..., Any]) -> None:
    replicas(REPLICAS)  # split the devices before TensorFlow runs: other tasks need them
    tf = import_tensorflow()
    images, labels = make_data()
    made = Models(tf.distribute.get_strategy())
    dataset = tf.data.Dataset.from_tensor_slices((images, labels))
    right = _adam(made.make_plain, images, labels)
    with tempfile.TemporaryDirectory() as whole, tempfile.TemporaryDirectory() as parts:
        never: list[int] = []
        model = _model(train(made.make, dataset, BATCH, whole, never.append), made)
        if [int(step) for step in never] != list(range(1, STEPS + 1)):
            raise Wrong(f"Call after_step(1), …, after_step({STEPS}), once after each step.")
        _check_steps(made.seen, 0, STEPS, "")
        _compare(_numpy(model), right, {}, f"keras.optimizers.Adam({ADAM_RATE})", CLOSE_ADAM)
        begin = 0
        for end in (*PREEMPTED_AFTER, STEPS):
            made.seen.clear()
            model = _until(train, made, dataset, parts, end)
            again = f"It was interrupted after step {begin} and started again. " if begin else ""
            _check_steps(made.seen, begin, end, again)
            begin = end
    first = PREEMPTED_AFTER
    mistakes: dict[str, Callable[[], list[Any]]] = {
        "The weights were restored, and the state of the optimizer was not. Adam's moments and "
        "its step counter belong into the checkpoint.": (
            lambda: _adam(made.make_plain, images, labels, first, moments=True, counter=True)
        ),
        "Adam's step counter (optimizer.iterations) began at 0 again.": (
            lambda: _adam(made.make_plain, images, labels, first, counter=True)
        ),
        "Adam's moments began at zero again.": (
            lambda: _adam(made.make_plain, images, labels, first, moments=True)
        ),
        "The weights were not restored: they began anew.": (
            lambda: _adam(made.make_plain, images, labels, first, weights=True)
        ),
        "Nothing was restored: weights and optimizer began anew.": (
            lambda: _adam(
                made.make_plain, images, labels, first, weights=True, moments=True, counter=True
            )
        ),
    }
    _compare(_numpy(model), right, mistakes, "the same program without an interruption", CLOSE_ADAM)


def _until(train: Callable[..., Any], made: Models, dataset: Any, folder: str, end: int) -> Any:
    """Train, interrupted after a step; the last step of all is not interrupted."""

    def after_step(step: Any) -> None:
        if int(step) == end < STEPS:
            raise Preempted

    try:
        result = train(made.make, dataset, BATCH, folder, after_step)
    except Preempted:
        return None
    if end < STEPS:
        raise Wrong(
            f"after_step ended the job after step {end}, and the loop went on. Either it did not "
            f"call after_step({end}), or it caught the exception."
        )
    return _model(result, made)


def _check_steps(
    seen: Sequence[tuple[int, tuple[int, ...], bool]], begin: int, end: int, says: str
) -> None:
    order = [image for _, images, training in seen if training for image in images]
    expected = list(range(begin * BATCH, end * BATCH))
    if order == expected:
        return
    if not order:
        raise Wrong(f"{says}Then it used no image: call the model with training=True.")
    if begin and order[0] == 0:
        raise Wrong(
            f"{says}It began with the first image of the dataset: save the position in the data, "
            "too, or skip what optimizer.iterations counts."
        )
    if begin and order[0] == (begin - 1) * BATCH:
        raise Wrong(f"{says}It used the batch of step {begin} again: save before after_step.")
    if begin and order[0] != expected[0]:
        raise Wrong(
            f"{says}It went on with image {order[0]}, and image {expected[0]} is the next one."
        )
    raise Wrong(
        f"{says}It used {len(order)} images, from {order[0]} to {order[-1]}. The serial program "
        f"uses {expected[0]} to {expected[-1]}, each once and in order."
    )


def _adam(
    make_model: Callable[[], Any], images: Any, labels: Any, restarts: Sequence[int] = (),
    *, weights: bool = False, moments: bool = False, counter: bool = False,
) -> list[Any]:  # fmt: skip
    """The weights after one pass with Adam; at each restart these begin anew."""
    tf = import_tensorflow()
    import keras

    with tf.device("/cpu:0"):
        model, optimizer = make_model(), keras.optimizers.Adam(ADAM_RATE)
        optimizer.build(model.trainable_variables)
        fresh = [variable.numpy() for variable in model.trainable_variables]
        kept = 2  # the counter and the learning rate come before the moments
        for step in range(STEPS):
            if step in restarts:
                if weights:
                    for variable, start in zip(model.trainable_variables, fresh, strict=True):
                        variable.assign(start)
                if moments:
                    for variable in optimizer.variables[kept:]:
                        variable.assign(tf.zeros_like(variable))
                if counter:
                    optimizer.iterations.assign(0)
            some = slice(step * BATCH, (step + 1) * BATCH)
            gradients, _ = _gradients(model, images[some], labels[some])
            optimizer.apply(gradients, model.trainable_variables)
    return _numpy(model)


# What all three need.


class Program:
    """The serial program with plain SGD; each step has parts, a rule makes one gradient of them."""

    def __init__(
        self, make_model: Callable[[], Any], images: Any, labels: Any, parts: Sequence[Any]
    ) -> None:
        self._make_model, self._images, self._labels = make_model, images, labels
        self._parts = parts

    def run(self, rule: Rule) -> list[Any]:
        """The weights after one pass."""
        with import_tensorflow().device("/cpu:0"):
            model = self._make_model()
            for parts in self._parts:
                _update(model, rule([self._of(model, part) for part in parts]))
        return _numpy(model)

    def run_at_once(self, factor: float) -> list[Any]:
        """The weights if each part makes an update of its own."""
        with import_tensorflow().device("/cpu:0"):
            model = self._make_model()
            for parts in self._parts:
                for part in parts:
                    _update(model, _times(factor, self._of(model, part)))
        return _numpy(model)

    def _of(self, model: Any, part: Any) -> Gradients:
        chosen = list(part)
        return _gradients(model, self._images[chosen], self._labels[chosen])[0]


def _gradients(model: Any, images: Any, labels: Any) -> tuple[Gradients, Any]:
    tf = import_tensorflow()
    with tf.GradientTape() as tape:
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(images, training=True))
        loss = tf.reduce_sum(each) / BATCH
    return tape.gradient(loss, model.trainable_variables), loss


def _update(model: Any, gradients: Gradients) -> None:
    for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
        variable.assign_sub(RATE * gradient)


def _sum(each: list[Gradients]) -> Gradients:
    return [sum(parts[1:], parts[0]) for parts in zip(*each, strict=True)]


def _times(factor: float, gradients: Gradients) -> Gradients:
    return [factor * gradient for gradient in gradients]


def _model(result: Any, made: Models) -> Any:
    if not any(result is one for one in made.models):
        raise Wrong("Return the model that make_model() made.")
    return result


def _numpy(model: Any) -> list[Any]:
    return [variable.numpy() for variable in model.trainable_variables]


def _copies(strategy: Any, model: Any) -> list[Any]:
    """The weights of replica 0; the other copies must be equal."""
    copies = [
        [copy.numpy() for copy in strategy.experimental_local_results(variable.value)]
        for variable in model.trainable_variables
    ]
    if any(abs(each[0] - other).max() > CLOSE for each in copies for other in each[1:]):
        raise Wrong(
            "The copies of the weights differ between the replicas: each used its own gradients. "
            "Sum the gradients over the replicas before the update."
        )
    return [each[0] for each in copies]


def _compare(
    weights: list[Any],
    right: list[Any],
    mistakes: dict[str, Callable[[], list[Any]]],
    program: str = f"keras.optimizers.SGD({RATE}) and the mean cross-entropy of logits",
    close: float = CLOSE,
) -> None:
    def difference(other: list[Any]) -> float:
        return max(float(abs(a - b).max()) for a, b in zip(weights, other, strict=True))

    if (apart := difference(right)) <= close:
        return
    for says, run in mistakes.items():
        wrong = run()
        size = max(float(abs(one).max()) for one in wrong)
        if difference(wrong) <= close * max(1.0, size):
            raise Wrong(says)
    raise Wrong(
        f"The weights differ by up to {apart:.1g} from those of the serial program: {program}."
    )
