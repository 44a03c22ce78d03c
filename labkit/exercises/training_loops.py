"""Judges of training loops in one process: under replicas, accumulated, clipped, resumed.

The first layer of the model writes down which images reach which replica. So the judge can tell
what the loop did with the data; what it did with the gradients is told by the weights, which are
compared with those of the serial program and of known mistakes.
"""

from __future__ import annotations

import reprlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

from labkit.exercises import serial
from labkit.exercises.judges import function
from labkit.exercises.serial import BATCH, CLOSE, REPLICAS, STEPS, Gradients, Rule, clip, total
from labkit.exercises.task import Wrong
from labkit.hardware import replicas
from labkit.hardware.devices import import_tensorflow

__all__ = [
    "Models", "accumulation", "check_images", "check_losses", "check_weights", "clipping",
    "each_loss", "make_layers", "resuming", "returned", "training_loop",
]  # fmt: skip

TIME_LIMIT = 120.0  # seconds; TensorFlow traces for some of them
CLOSE_ADAM = 2e-4  # Adam divides by the size of the gradient: rounding of a small one is enlarged
MICRO_BATCHES = 4
INTERRUPTED_AFTER = (2, 4)
MOST = 10 * BATCH * STEPS  # calls of the model: more are an endless loop

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
        with made.naming(_sgd()):
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
        with made.naming(_sgd(), but="accumulation"):
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
        mistakes = {says: serial.train(rule, parts)[0] for says, rule in rules.items()}
        with made.naming(_sgd(), but="clip"):
            serial.compare(_first_copies(_copies(strategy, model)), right, mistakes)

    return function(examine, seconds=TIME_LIMIT)


def resuming() -> Callable[[Any], None]:
    """A function of (make_model, dataset, batch, folder, after_step) that returns the model."""

    def examine(my_train: Callable[..., Any]) -> None:
        made, begin, steps = _on_one_device(), 0, list[int]()
        with _exact(made), tempfile.TemporaryDirectory() as folder:
            for end in (*INTERRUPTED_AFTER, STEPS):
                made.seen.clear()
                model = _run_until(my_train, made, folder, end, steps)
                again = f"It was interrupted after step {begin} and run again. " if begin else ""
                _check_steps(made.seen, begin, end, again)
                begin = end
        if steps != list(range(1, STEPS + 1)):
            raise Wrong(f"Call after_step(1), …, after_step({STEPS}), once after each step.")
        adam = f"keras.optimizers.Adam({serial.ADAM_RATE})"
        right = serial.train_with_adam()
        with made.naming(_adam()):
            serial.compare(_numpy(model), right, _resuming_mistakes(), adam, CLOSE_ADAM)

    return function(examine, seconds=TIME_LIMIT)


# The model, and what it has seen.

ENDLESS = f"The model was called {MOST} times, and there are {STEPS} batches: the loop has no end."
# What a student should know beside a sentence with these words.
TENSORFLOW_SAYS = {
    "PerReplica": "A PerReplica holds a value for each replica. Only a function that strategy.run "
    "calls can compute with them, and strategy.reduce makes one value of them.",
    "outside the replica context": "The step ran once, beside the replicas: the scope is for "
    "making variables. Call the step with strategy.run(step, args=(images, labels)).",
}


class Models:
    """Makes the model, always with the same weights, and follows the images that it is given."""

    def __init__(self, strategy: Any) -> None:
        self._strategy = strategy
        self._layer = _watch_layer(self._note)
        self._in_scope: list[bool] = []
        self.models: list[Any] = []
        self.optimizers: list[Any] = []
        self.seen: list[tuple[int, tuple[int, ...], bool]] = []

    def make(self) -> Any:
        """What a student calls."""
        tf = import_tensorflow()
        self._in_scope.append(tf.distribute.get_strategy() is self._strategy)
        self.models.append(make_layers(self._layer()))
        return self.models[-1]

    @contextmanager
    def following_optimizers(self) -> Iterator[None]:
        """Note each optimizer of Keras that is applied."""
        import keras

        tf = import_tensorflow()
        apply = keras.optimizers.Optimizer.apply

        def noted(optimizer: Any, *arguments: Any, **keywords: Any) -> Any:
            if not any(optimizer is one for one in self.optimizers):
                self.optimizers.append(optimizer)
            return apply(optimizer, *arguments, **keywords)

        noted = tf.autograph.experimental.do_not_convert(noted)
        with mock.patch.object(keras.optimizers.Optimizer, "apply", noted):
            yield

    @contextmanager
    def naming(self, right: Any, but: str = "-") -> Iterator[None]:
        """If the weights are wrong and the optimizer is another one, say that."""
        try:
            yield
        except Wrong:
            expected = _settings(right)
            for optimizer in self.optimizers:
                found = _settings(optimizer)
                other = [
                    f"{name} = {found[name]}"
                    for name, value in expected.items()
                    if but not in name and name in found and found[name] != value
                ]
                if type(optimizer) is not type(right) or other:
                    having = f" with {', '.join(other)}" if other else ""
                    raise Wrong(
                        f"Your optimizer is {type(optimizer).__name__}{having}. The task asks for "
                        f"keras.optimizers.{type(right).__name__}({expected['learning_rate']:g})."
                    ) from None
            raise

    def check_scope(self) -> None:
        """Every model and every optimizer must have been made inside the scope."""
        if not all(self._in_scope):
            raise Wrong(
                "make_model() was called outside strategy.scope(): its variables lie on one "
                "device, and the replicas have no copies. Write `with strategy.scope():` around it."
            )

        if self._strategy is import_tensorflow().distribute.get_strategy():
            return  # on one device there is no scope
        in_scope = self._strategy.extended.variable_created_in_scope
        if not all(in_scope(optimizer.iterations.value) for optimizer in self.optimizers):
            raise Wrong(
                "The optimizer was made outside strategy.scope(): its variables, such as the step "
                "counter, have no copies on the replicas. Make it (or call model.compile) inside "
                "`with strategy.scope():`."
            )

    def _note(self, replica: Any, numbers: Any, training: Any) -> Any:
        import numpy as np

        if len(self.seen) >= MOST:
            raise RuntimeError(ENDLESS)

        numbers = np.rint(numbers.numpy() * BATCH * STEPS).astype(int)
        self.seen.append((int(replica), tuple(numbers.tolist()), bool(training)))
        return np.int32(0)


def make_layers(*first: Any) -> Any:
    """The network of the serial program, behind these layers."""
    import keras

    constant = keras.initializers.Constant
    kernel, bias, last_kernel, last_bias = serial.first_weights()
    return keras.Sequential([
        keras.Input(serial.SIZE), *first, keras.layers.Flatten(),
        keras.layers.Dense(len(bias), "relu", kernel_initializer=constant(kernel)),
        keras.layers.Dense(len(last_bias), kernel_initializer=constant(last_kernel)),
    ])  # fmt: skip


def _sgd() -> Any:
    import keras

    return keras.optimizers.SGD(serial.RATE)


def _adam() -> Any:
    import keras

    return keras.optimizers.Adam(serial.ADAM_RATE)


def _settings(optimizer: Any) -> dict[str, Any]:
    rate = round(float(import_tensorflow().convert_to_tensor(optimizer.learning_rate)), 6)
    return {**optimizer.get_config(), "name": "", "learning_rate": rate}


def _watch_layer(note: Callable[..., Any]) -> Any:
    tf = import_tensorflow()
    import keras

    class Watch(keras.layers.Layer):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.supports_jit = False

        def call(self, images: Any, training: bool = False) -> Any:
            if isinstance(images, keras.KerasTensor):
                return images
            context = tf.distribute.get_replica_context()
            replica = -1 if context is None else context.replica_id_in_sync_group
            with tf.device("/cpu:0"):
                first = images[:, 0, 0]
                noted = tf.py_function(note, [replica, first, bool(training)], tf.int32)
            with tf.control_dependencies([noted]):
                return tf.identity(images)

    return Watch


def _dataset() -> Any:
    return import_tensorflow().data.Dataset.from_tensor_slices(serial.make_data())


def _on_one_device() -> Models:
    replicas(REPLICAS)  # split the devices before TensorFlow runs: other tasks need them
    return Models(import_tensorflow().distribute.get_strategy())


@contextmanager
def _exact(made: Models) -> Iterator[None]:
    """A GPU rounds as float32 does; a model outside the scope is named before what it led to."""
    tf32 = import_tensorflow().config.experimental
    before = tf32.tensor_float_32_execution_enabled()
    tf32.enable_tensor_float_32_execution(False)
    try:
        with made.following_optimizers():
            yield
    except Wrong as fault:
        made.check_scope()  # TensorFlow's own sentence on this says little
        if len(made.seen) >= MOST:
            raise Wrong(ENDLESS) from None
        for words, says in TENSORFLOW_SAYS.items():
            if words in str(fault):
                raise Wrong(f"{says} {fault}") from None
        raise
    finally:
        tf32.enable_tensor_float_32_execution(before)
    made.check_scope()


def returned(
    result: Any, models: list[Any], second: str = "the list of the loss of each step"
) -> tuple[Any, Any]:
    """The model, and what belongs to it."""
    if not models:
        raise Wrong("It never called make_model(). Call it inside `with strategy.scope():`.")
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise Wrong(f"Return two things: the model, and {second}.")
    return _model(result[0], models), result[1]


def _model(result: Any, models: list[Any]) -> Any:
    if not any(result is one for one in models):
        raise Wrong("Return the model that make_model() made.")
    count, made = len(result.trainable_variables), len(serial.first_weights())
    if count != made:
        raise Wrong(
            f"The model has {count} trainable variables, and make_model() made {made}: do not "
            "freeze or add a layer."
        )
    return result


def _numpy(model: Any) -> list[Any]:
    return [variable.numpy() for variable in model.trainable_variables]


def _copies(strategy: Any, model: Any) -> list[list[Any]]:
    """Each variable's copies, a replica each."""
    return [
        [copy.numpy() for copy in strategy.experimental_local_results(variable.value)]
        for variable in model.trainable_variables
    ]


# Images.


def check_images(seen: Seen) -> list[dict[int, Any]]:
    """Every image once, in the order of the dataset, a global batch a step; the shares by step."""
    if not seen:
        raise Wrong("The model never saw an image.")
    trained = [(replica, images) for replica, images, training in seen if training]
    if not trained:
        raise Wrong("Call the model with training=True: else Dropout and its like do nothing.")
    rows: dict[int, list[tuple[int, ...]]] = {}
    for replica, images in sorted(trained, key=lambda one: one[0]):
        rows.setdefault(replica, []).append(images)
    if len(rows) < REPLICAS:
        raise Wrong(
            "One replica alone did all the work. Run the step on all of them: "
            "strategy.run(step, args=(images, labels))."
        )
    steps = max(map(len, rows.values()))
    shares = [{r: row[s] for r, row in rows.items() if s < len(row)} for s in range(steps)]
    first = shares[0]
    if len(set(first.values())) == 1:
        raise Wrong(
            f"Both replicas got the same {len(first[0])} images. Distribute the dataset: "
            "strategy.experimental_distribute_dataset(dataset.batch(global_batch))."
        )
    size = sum(map(len, first.values()))
    if size != BATCH:
        less = "A local batch stands where the global one belongs. " if size < BATCH else ""
        raise Wrong(
            f"The replicas together took {size} images in the first step, and the global batch is "
            f"{BATCH}. {less}experimental_distribute_dataset expects batches of global_batch and "
            "divides them; distribute_datasets_from_function expects those of one replica."
        )
    for number, share in enumerate(shares[:STEPS]):
        found = sorted(image for images in share.values() for image in images)
        expected = list(range(number * BATCH, (number + 1) * BATCH))
        if found != expected:
            some = f"{', '.join(map(str, found[:3]))}, …, {found[-1]}"
            raise Wrong(
                f"Step {number + 1} used the images {some}, and the serial program uses "
                f"{expected[0]} to {expected[-1]}. Use each image once, in the order of the "
                "dataset: do not shuffle or skip."
            )
    if steps != STEPS:
        raise Wrong(f"It took {steps} steps; one pass over the dataset has {STEPS}.")
    return shares


def _check_micro_batches(seen: Seen) -> None:
    trained = [images for _, images, training in seen if training]
    if not trained:
        raise Wrong("The model was never called with training=True.")
    size = BATCH // MICRO_BATCHES
    if (largest := max(map(len, trained))) > size:
        raise Wrong(
            f"The model got {largest} images in one call. The batch has {BATCH} images and "
            f"{MICRO_BATCHES} micro-batches: at most {size} images may be on the device at once."
        )
    _check_steps(seen, 0, STEPS, "")


def _check_steps(seen: Seen, begin: int, end: int, says: str) -> None:
    order = [image for _, images, training in seen if training for image in images]
    batches = [order[first : first + BATCH] for first in range(0, len(order), BATCH)]
    expected = list(range(begin * BATCH, end * BATCH))
    if [image for batch in batches for image in sorted(batch)] == expected:
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
    raise Wrong(
        f"{says}It used {len(order)} images, from {order[0]} to {order[-1]}. The serial program "
        f"uses {expected[0]} to {expected[-1]}, each once and in order."
    )


class Preempted(BaseException):
    """The scheduler ends the job: no `except Exception` stops it."""


def _run_until(
    my_train: Callable[..., Any], made: Models, folder: str, end: int, steps: list[int]
) -> Any:
    """Train, interrupted after a step; the last step of all is not interrupted."""

    def after_step(step: Any) -> None:
        if int(step) < 1:
            raise Wrong(f"It called after_step({int(step)}). The first step has the number 1.")
        steps.append(int(step))
        if int(step) == end < STEPS:
            raise Preempted

    try:
        result = my_train(made.make, _dataset(), BATCH, folder, after_step)
    except Preempted:
        return None
    if end < STEPS:
        raise Wrong(
            f"after_step ended the job after step {end}, and the loop went on. Either it did not "
            f"call after_step({end}), or it caught the exception."
        )
    return _model(result, made.models)


# Weights and losses, and known mistakes.


def _first_copies(copies: Sequence[Sequence[Any]]) -> list[Any]:
    """The copies of each variable must be equal."""
    if any(abs(each[0] - other).max() > CLOSE for each in copies for other in each[1:]):
        raise Wrong(
            "The copies of the weights differ between the replicas: each used its own gradients. "
            "Sum the gradients over the replicas before the update; optimizer.apply_gradients "
            "inside strategy.run does."
        )
    return [each[0] for each in copies]


NO_UPDATE = "The weights have not changed: apply the gradients with the optimizer."
FACTORS = {
    REPLICAS: f"The gradients are {REPLICAS} times too large: each replica takes the mean loss of "
    "its own share, and the gradients of the replicas are summed. Divide the summed loss by "
    "global_batch, as tf.nn.compute_average_loss does.",
    1 / REPLICAS: f"The gradients are {REPLICAS} times too small: they are summed over the "
    "replicas, and were divided by their number once more. (A Keras loss that takes the mean "
    "divides by it already.)",
    1 / BATCH: f"The gradients are {BATCH} times too small: a mean loss is divided by global_batch "
    "once more. Divide the sum of the losses by it.",
    REPLICAS / BATCH: f"The gradients are {BATCH / REPLICAS:g} times too small: the mean loss of "
    "each share is divided by global_batch once more. Divide the sum of the losses by it.",
    BATCH: "The loss is a sum, not a mean: divide it by global_batch.",
    BATCH / REPLICAS: "The loss is divided by the number of replicas, and must be divided by "
    "global_batch.",
    0: NO_UPDATE,
}


def check_weights(copies: Sequence[Sequence[Any]]) -> None:
    """The copies of each variable must be equal, and those of the serial program."""
    mistakes = {says: serial.train(serial.scaled(by))[0] for by, says in FACTORS.items()}
    serial.compare(_first_copies(copies), serial.train()[0], mistakes)


def each_loss(losses: Any) -> list[Any]:
    """The losses that were returned."""
    try:
        return list(losses)
    except TypeError:
        text = reprlib.repr(losses)
        raise Wrong(f"Return the list of the loss of each step, and not {text}.") from None


def _loss(loss: Any) -> float:
    try:
        return float(loss)
    except (TypeError, ValueError):
        pass
    if loss is None or "PerReplica" in type(loss).__name__:
        raise Wrong(
            "The loss of a step is no number: strategy.run returns one value for each replica. "
            "Reduce them: strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)."
        )
    if import_tensorflow().is_symbolic_tensor(loss):
        raise Wrong(
            "A loss is a symbolic tensor: Python code in a tf.function, such as append, runs when "
            "it is traced and not in each step. Return the loss, and append it outside."
        )
    raise Wrong(f"The loss of a step is no number, but {reprlib.repr(loss)}.")


def check_losses(losses: Any, shares: Sequence[dict[int, Any]]) -> None:
    """The loss of each step must be the mean over the global batch."""
    import numpy as np

    found = np.array([_loss(loss) for loss in each_loss(losses)])
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
    for factor, says in {
        REPLICAS: "The mean of each replica is summed: divide the sum by their number.",
        1 / REPLICAS: "Each replica's part is divided by global_batch (or, in a Keras loss, by the "
        "number of replicas) already, so the parts are summed, not averaged.",
        BATCH: "They are sums: divide them by global_batch.",
    }.items():
        if is_(factor * right):
            raise Wrong(f"The losses are {factor:g} times those of the serial program. {says}")
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
        "Only the last micro-batch of each batch reached the weights, as a part of the mean: add "
        "its gradients to those of the others.": (lambda each: each[-1], parts),
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
        "The gradients are not clipped. (The norm of their mean over the replicas is too small: it "
        "must be that of their sum.)": total,
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
        "mean loss of its own share. Divide the summed loss by global_batch. (Or those below "
        "clip_norm are enlarged: the factor is at most tf.minimum(1.0, clip_norm / norm).)": (
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
