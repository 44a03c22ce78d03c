"""The judge of a training loop: run on two replicas, its images followed, its weights compared.

The first layer of the model writes down which images reach which replica. So the judge can tell
what the loop did with the data; what it did with the gradients is told by the weights, which are
compared with those of the serial program and of known mistakes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from labkit.exercises.judges import function
from labkit.exercises.task import Wrong
from labkit.hardware import replicas
from labkit.hardware.devices import import_tensorflow

__all__ = [
    "BATCH",
    "CLOSE",
    "RATE",
    "REPLICAS",
    "STEPS",
    "Models",
    "Serial",
    "check_images",
    "check_losses",
    "check_weights",
    "make_data",
    "returned",
    "training_loop",
]

REPLICAS, BATCH, STEPS, RATE = 2, 32, 8, 0.1
SIZE, CLASSES = (8, 8), 5
TIME_LIMIT = 120.0  # seconds; TensorFlow traces for some of them
CLOSE = 1e-5


def training_loop() -> Callable[[Any], None]:
    """A function of (strategy, make_model, dataset, global_batch) that returns (model, losses).

    It must train one pass with plain SGD, rate RATE, the mean loss of each global batch.
    """
    return function(_examine, seconds=TIME_LIMIT)


def _examine(train: Callable[..., Any]) -> None:
    tf = import_tensorflow()
    strategy = replicas(REPLICAS).strategy()
    images, labels = make_data()
    made = Models(strategy)
    dataset = tf.data.Dataset.from_tensor_slices((images, labels))
    tf.config.experimental.enable_tensor_float_32_execution(False)  # GPUs: round as float32 does
    try:
        result = train(strategy, made.make, dataset, BATCH)
    except Wrong:
        if made.models:
            made.check_scope()  # TensorFlow's own sentence on this says little
        raise
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(True)
    made.check_scope()
    model, losses = returned(result, made)
    shares = check_images(made.seen)
    serial = Serial(made.make_plain, images, labels)
    copies = [
        [copy.numpy() for copy in strategy.experimental_local_results(variable.value)]
        for variable in model.trainable_variables
    ]
    check_weights(copies, serial)
    check_losses(losses, serial, shares)


def make_data() -> tuple[Any, Any]:
    """Images that can be learnt; the number of an image is in its first pixel, as its share."""
    import numpy as np

    random = np.random.default_rng(3)
    labels = random.integers(0, CLASSES, BATCH * STEPS).astype("int32")
    patterns = random.random((CLASSES, *SIZE))
    images = 0.5 * patterns[labels] + 0.5 * random.random((len(labels), *SIZE))
    images[:, 0, 0] = np.arange(len(labels)) / len(labels)
    return images.astype("float32"), labels


class Models:
    """Makes the model, always with the same weights, and follows the images that it is given."""

    def __init__(self, strategy: Any) -> None:
        self._strategy = strategy
        self._layer = _watch_layer(self._note)
        self._in_scope: list[bool] = []
        self.models: list[Any] = []
        self.seen: list[tuple[int, tuple[int, ...], bool]] = []  # replica, images, training

    def make(self) -> Any:
        """What a student calls."""
        tf = import_tensorflow()
        self._in_scope.append(tf.distribute.get_strategy() is self._strategy)
        self.models.append(self._made(self._layer()))
        return self.models[-1]

    def make_plain(self) -> Any:
        """The same model, for the serial program."""
        return self._made()

    def check_scope(self) -> None:
        """The model must have been made, and inside the scope."""
        if not self.models:
            raise Wrong("It never called make_model(). Call it inside `with strategy.scope():`.")
        if not all(self._in_scope):
            raise Wrong(
                "make_model() was called outside strategy.scope(): its variables lie on one "
                "device, and the replicas have no copies. Write `with strategy.scope():` around it."
            )

    def _made(self, *first: Any) -> Any:
        import keras

        def dense(units: int, seed: int, **options: Any) -> Any:
            start = keras.initializers.GlorotUniform(seed=seed)
            return keras.layers.Dense(units, kernel_initializer=start, **options)

        return keras.Sequential(
            [keras.Input(SIZE), *first, keras.layers.Flatten(),
             dense(16, 1, activation="relu"), dense(CLASSES, 2)]
        )  # fmt: skip

    def _note(self, replica: Any, numbers: Any, training: Any) -> Any:
        import numpy as np

        numbers = np.rint(numbers.numpy() * BATCH * STEPS).astype(int)
        self.seen.append((int(replica), tuple(numbers.tolist()), bool(training)))
        return np.int32(0)


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


def returned(result: Any, made: Models) -> tuple[Any, Any]:
    """The model and the losses."""
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise Wrong("Return two things: the model, and the list of the loss of each step.")
    model, losses = result
    if not any(model is one for one in made.models):
        raise Wrong("The first thing that you return must be the model that make_model() made.")
    return model, losses


def check_images(seen: Sequence[tuple[int, tuple[int, ...], bool]]) -> list[dict[int, Any]]:
    """Every image once, in the order of the dataset, a global batch a step; the shares by step."""
    if not seen:
        raise Wrong("The model never saw an image.")
    trained = [(replica, images) for replica, images, training in seen if training]
    if not trained:
        raise Wrong("Call the model with training=True: else Dropout and its like do nothing.")
    rows: dict[int, list[tuple[int, ...]]] = {}
    for replica, images in trained:
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
    for number, share in enumerate(shares):
        found = sorted(image for images in share.values() for image in images)
        expected = list(range(number * BATCH, (number + 1) * BATCH))
        if number >= STEPS:
            raise Wrong(f"It took {steps} steps; one pass over the dataset has {STEPS}.")
        if found != expected:
            raise Wrong(
                f"Step {number + 1} used the images {_some(found)}, and the serial program uses "
                f"{expected[0]} to {expected[-1]}. Keep the order of the dataset: do not shuffle."
            )
    if steps < STEPS:
        raise Wrong(f"It took {steps} steps; one pass over the dataset has {STEPS}.")
    return shares


def _some(numbers: Sequence[int]) -> str:
    return f"{', '.join(map(str, numbers[:3]))}, …, {numbers[-1]}"


class Serial:
    """The serial program, with its gradients multiplied by a factor."""

    def __init__(self, make_model: Callable[[], Any], images: Any, labels: Any) -> None:
        self._make_model, self._images, self._labels = make_model, images, labels

    def run(self, factor: float = 1.0, passes: int = 1) -> tuple[list[Any], Any]:
        """The weights after so many passes, and the loss of every image in its step."""
        tf = import_tensorflow()
        import numpy as np

        entropy = tf.nn.sparse_softmax_cross_entropy_with_logits
        with tf.device("/cpu:0"):
            model = self._make_model()
            losses = []
            for step in range(passes * STEPS):
                first = step % STEPS * BATCH
                some = slice(first, first + BATCH)
                with tf.GradientTape() as tape:
                    logits = model(self._images[some], training=True)
                    each = entropy(self._labels[some], logits)
                    loss = tf.reduce_mean(each)
                gradients = tape.gradient(loss, model.trainable_variables)
                for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
                    variable.assign_sub(RATE * factor * gradient)
                losses.append(each.numpy())
        return [variable.numpy() for variable in model.trainable_variables], np.array(losses)


def check_weights(copies: Sequence[Sequence[Any]], serial: Serial) -> None:
    """The copies of each variable must be equal, and those of the serial program."""
    if any(abs(each[0] - other).max() > CLOSE for each in copies for other in each[1:]):
        raise Wrong(
            "The copies of the weights differ between the replicas: each used its own gradients. "
            "Sum the gradients over the replicas before the update; optimizer.apply_gradients "
            "inside strategy.run does."
        )
    weights = [each[0] for each in copies]

    def differ(factor: float) -> float:
        expected, _ = serial.run(factor)
        return max(float(abs(a - b).max()) for a, b in zip(weights, expected, strict=True))

    if (difference := differ(1.0)) <= CLOSE:
        return
    mistakes = {
        REPLICAS: f"The gradients are {REPLICAS} times too large: each replica takes the mean "
        "loss of its own share, and the gradients of the replicas are summed. Divide the summed "
        "loss by global_batch, as tf.nn.compute_average_loss does.",
        1 / REPLICAS: f"The gradients are {REPLICAS} times too small: they are summed over the "
        "replicas, and were divided by their number once more.",
        BATCH: "The loss is a sum, not a mean: divide it by global_batch.",
        BATCH / REPLICAS: "The loss is divided by the number of replicas, and must be divided by "
        "global_batch.",
        0: "The weights have not changed: apply the gradients with the optimizer.",
    }
    for factor, says in mistakes.items():
        if differ(factor) <= CLOSE * max(1, factor):
            raise Wrong(says)
    raise Wrong(
        f"The weights differ from those of the serial program by up to {difference:.1g}. It uses "
        f"keras.optimizers.SGD({RATE}) and the cross-entropy of logits."
    )


def check_losses(losses: Any, serial: Serial, shares: Sequence[dict[int, Any]]) -> None:
    """The loss of each step must be the mean over the global batch."""
    import numpy as np

    try:
        found = np.array([float(loss) for loss in losses])
    except (TypeError, ValueError):
        raise Wrong(
            "The loss of a step is no number: strategy.run returns one value for each replica. "
            "Reduce them: strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)."
        ) from None
    _, each = serial.run()
    if len(found) != STEPS:
        raise Wrong(f"You returned {len(found)} losses; there are {STEPS} steps.")

    def is_(expected: Any) -> bool:
        return bool(np.allclose(found, expected, rtol=1e-3, atol=1e-4))

    right = each.mean(axis=1)
    if is_(right):
        return
    of_each = each.ravel()
    of_one = [
        np.array([of_each[list(share[replica])].sum() for share in shares])
        for replica in range(REPLICAS)
    ]
    if any(is_(loss / BATCH) or is_(loss * REPLICAS / BATCH) for loss in of_one):
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
