"""A training job: one model, one step, one data set, placed on one device or on many replicas."""

from __future__ import annotations

import time
from typing import Any

from labkit.arguments import number, one_of, whole
from labkit.hardware.devices import import_tensorflow
from labkit.kinds import Kind, LabError, measured
from labkit.progress import progress
from labkit.telemetry.spans import span
from labkit.training.history import Epoch, History, Score
from labkit.training.inputs import Inputs, batch_sizes, epoch_order, in_memory, scale_images
from labkit.training.models import MODELS
from labkit.training.optimizers import Optimizer, SharedUpdate
from labkit.training.step import loss_per_image, sum_over_replicas, training_step

EVALUATED_AT_ONCE = 1000  # images: a convolution of more of them would fill the memory
STEPS_PER_CALL = 64  # at least: a call costs as much as a step of the dense model
CALLS_PER_EPOCH = 20  # enough for a progress line and for Ctrl-C, too few to cost anything


class Job:
    """A model with its optimizer, its data and the replicas that train it.

    >>> job = Job("dense", data, replicas=labkit.replicas(2), batch=32)  # doctest: +SKIP
    >>> job.train(epochs=5)                                              # doctest: +SKIP

    batch and scaling fix the global batch: "strong" keeps `batch` for all replicas together, "weak"
    gives `batch` to each. An epoch has whole global batches only. Many steps run in each call of
    one TensorFlow function. In ranks, take replicas=labkit.strategies.workers().
    """

    def __init__(
        self, model: str, data: Any, *, replicas: Any, batch: int = 32, scaling: str = "strong",
        optimizer: str = "adam", learning_rate: float = 0.001, warmup_steps: int = 0,
        dropout: float = 0.2, images: int | None = None, seed: int = 0,
        reduction: str | None = None,
    ) -> None:  # fmt: skip
        began = time.perf_counter()
        self._arguments = {k: v for k, v in locals().items() if k not in ("self", "began")}
        if not hasattr(data, "x_train"):
            raise LabError("A job needs data: pass data=labkit.datasets.mnist().")
        make = MODELS[one_of("model", model, MODELS)]
        tf = import_tensorflow()
        if not hasattr(replicas, "strategy"):
            raise LabError(f"replicas must be labkit.replicas({replicas!r}), got {replicas!r}.")
        self.data, self.replicas, self.seed = data, replicas, whole("seed", seed, at_most=2**31)
        dropout = number("dropout", dropout, at_least=0, below=1)
        self.global_batch, self.replica_batch = batch_sizes(batch, replicas.count, scaling)
        there = len(data.y_train)
        images = there if images is None else images
        self._count = whole("images", images, at_least=1, at_most=there)
        self.steps_per_epoch = self._count // self.global_batch
        if not self.steps_per_epoch:
            raise LabError(
                f"A global batch of {self.global_batch} needs as many images, got {self._count:,}. "
                "Take a smaller batch or more images."
            )
        self.strategy = replicas.strategy(reduction)
        import keras

        keras.utils.set_random_seed(self.seed)  # the same first weights everywhere
        with self.strategy.scope():
            self.model = make(data.x_train.shape[1:], data.classes, dropout)
            self.optimizer = Optimizer(optimizer, learning_rate, warmup_steps)
            self.optimizer.build(self.model.trainable_variables)
            # Each replica adds up its own losses; the sum is read once an epoch, not every step.
            self._loss = tf.Variable(
                tf.zeros((), self.model.compute_dtype),
                trainable=False,
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.SUM,
            )
        # Workers are processes, and all have this seed: dropout must differ between them.
        tf.random.set_seed(self.seed + 1_000_003 * replicas.index)
        # CIFAR's labels have the shape (n, 1), as Keras gives them.
        self._test_labels = data.y_test.ravel().astype("int32")
        train = data.x_train[: self._count], data.y_train[: self._count].ravel()
        self.inputs = in_memory(self.strategy, *train, self.replica_batch)
        self.epochs: list[Epoch] = []
        self._started = 0
        self.run_steps = self.build_loop(self.inputs)
        self._evaluate = _evaluation(self.model, data.x_test.shape[1:])
        # Run zero steps, so that kernels exist before the first timed epoch.
        self.run_steps(self.order(0), tf.constant(0), tf.constant(0))
        self.start_seconds = time.perf_counter() - began

    def on(self, replicas: Any, **changed: Any) -> Job:
        """Returns the same job from the beginning, on other replicas; keywords change more."""
        arguments = {**self._arguments, "replicas": replicas}
        if getattr(replicas, "count", 0) == 1:
            arguments["reduction"] = None  # one device has nothing to reduce
        return Job(**{**arguments, **changed})

    @property
    def images(self) -> int:
        """Images that an epoch trains on: whole global batches only."""
        return self.steps_per_epoch * self.global_batch

    def order(self, epoch: int) -> Any:
        """Returns the order of an epoch's images, the same for any number of replicas."""
        return epoch_order(self._count, epoch, self.seed)

    def build_loop(self, inputs: Inputs, *, reduce: bool = True) -> Any:
        """Returns a loop over steps, a tf.function of (order, first step, number of steps).

        With reduce=False each replica keeps its own gradients: the breakdown times that.
        """
        tf = import_tensorflow()
        reduced = reduce and self.replicas.count > 1
        together = sum_over_replicas if reduced else list
        shared = self.replicas.shared_variables
        optimizer = SharedUpdate(self.optimizer) if shared else self.optimizer

        def one_step(*arguments: Any) -> None:
            images, labels = inputs.batch_at(*arguments)
            loss = training_step(
                self.model, optimizer, scale_images(images), labels, self.global_batch, together
            )
            self._loss.assign_add(loss)

        # AutoGraph would rewrite every function down to the step, for a second; a loop needs none.
        @tf.function(autograph=False)  # type: ignore[untyped-decorator]
        def run_steps(order: Any, first: Any, steps: Any) -> None:
            def body(number: Any) -> tuple[Any]:
                self.strategy.run(one_step, args=inputs.arguments(order, number))
                return (number + 1,)

            # Steps depend on each other: parallel iterations cost bookkeeping and win nothing.
            tf.while_loop(
                lambda number: number < first + steps, body, (first,), parallel_iterations=1
            )

        # One trace for any number of steps: neither the first call nor a shorter one traces again.
        number = tf.TensorSpec((), tf.int32)
        return run_steps.get_concrete_function(tf.TensorSpec((None,), tf.int32), number, number)

    def train(self, epochs: int = 1) -> History:
        """Train some more epochs, evaluating after each. Ctrl-C keeps the finished ones."""
        epochs = whole("epochs", epochs, at_least=1)
        try:
            for number in range(1, epochs + 1):
                seconds, loss = self._epoch(f"epoch {number} of {epochs}")
                self.epochs.append(Epoch(seconds, loss, self.evaluate().accuracy))
        except KeyboardInterrupt:
            return self.record(interrupted=True)
        return self.record()

    def epoch(self) -> float:
        """Train an epoch without evaluation, for `labkit.compare`. Returns its mean loss."""
        return self._epoch("epoch")[1]

    def steps(self, count: int) -> None:
        """Train this number of steps, from the beginning of the next epoch's order."""
        tf = import_tensorflow()
        count = whole("count", count, at_least=1, at_most=self.steps_per_epoch)
        self.run_steps(self._next_order(), tf.constant(0), tf.constant(count))
        self.synchronize()

    def synchronize(self) -> float:
        """Wait until the devices have finished all steps. Returns the sum of the losses."""
        return float(import_tensorflow().convert_to_tensor(self._loss))

    def evaluate(self) -> Score:
        """Returns loss and accuracy on the test images."""
        tf = import_tensorflow()
        x, y = self.data.x_test, self._test_labels
        loss, correct = 0.0, 0
        for first in range(0, len(y), EVALUATED_AT_ONCE):
            some = slice(first, first + EVALUATED_AT_ONCE)
            added, hits = self._evaluate(tf.constant(x[some]), tf.constant(y[some]))
            loss, correct = loss + float(added), correct + int(hits)
        return Score(loss / len(y), correct / len(y), len(y))

    def record(self, interrupted: bool = False) -> History:
        """Returns all epochs so far, as plain data."""
        return History(
            model=self.model.name,
            parameters=int(self.model.count_params()),
            data=self.data.label,
            images=self.images,
            replicas=self.replicas.count,
            global_batch=self.global_batch,
            steps_per_epoch=self.steps_per_epoch,
            start_seconds=self.start_seconds,
            epochs=tuple(self.epochs),
            kind=self.kind,
            interrupted=interrupted,
        )

    def weights(self) -> list[Any]:
        """Returns the model's weights as NumPy arrays."""
        return [variable.numpy() for variable in self.model.trainable_variables]

    @property
    def kind(self) -> Kind:
        """Everything that a job times is measured here, on these replicas."""
        return measured(self.replicas.describe())

    def _next_order(self) -> Any:
        self._started += 1
        return self.order(self._started - 1)

    def _epoch(self, name: str) -> tuple[float, float]:
        tf = import_tensorflow()
        order = self._next_order()
        self._loss.assign(0.0)
        stride = max(STEPS_PER_CALL, -(-self.steps_per_epoch // CALLS_PER_EPOCH))
        began = time.perf_counter()
        # A panel shows the epoch as a span; without a panel this costs nothing.
        epoch = span(name.partition(" of ")[0], self.images)
        with epoch, progress(name, self.steps_per_epoch) as advanced:
            for first in range(0, self.steps_per_epoch, stride):
                count = min(stride, self.steps_per_epoch - first)
                self.run_steps(order, tf.constant(first), tf.constant(count))
                advanced(first + count)
            loss = self.synchronize() / self.steps_per_epoch
            epoch.end(loss=loss)
        return time.perf_counter() - began, loss


def _evaluation(model: Any, shape: tuple[int, ...]) -> Any:
    tf = import_tensorflow()

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def evaluate(images: Any, labels: Any) -> tuple[Any, Any]:
        logits = model(scale_images(images), training=False)
        hits = tf.argmax(logits, axis=1, output_type=tf.int32) == labels
        return tf.reduce_sum(loss_per_image(labels, logits)), tf.reduce_sum(tf.cast(hits, tf.int32))

    images = tf.TensorSpec((None, *shape), tf.uint8)
    return evaluate.get_concrete_function(images, tf.TensorSpec((None,), tf.int32))
