"""A training job: one model, one step, one data set, placed on one device or on many replicas."""

from __future__ import annotations

import time
from typing import Any

from labkit.hardware.devices import import_tensorflow
from labkit.kinds import Kind, LabError, measured
from labkit.progress import progress
from labkit.telemetry.spans import mark
from labkit.training.asked import images_for, share, whole
from labkit.training.history import Epoch, Score, Training
from labkit.training.models import build
from labkit.training.optimizers import Optimizer, UpdatedOnce
from labkit.training.pipeline import Resident, Streamed, order_of, scaled
from labkit.training.scaling import batches
from labkit.training.step import loss_per_image, sum_over_replicas, training_step

__all__ = ["Job"]

EVALUATED_AT_ONCE = 1000  # images: what a convolution makes of more would fill the memory
STEPS_PER_CALL = 64  # at least: a call costs as much as a step of the dense model
CALLS_PER_EPOCH = 20  # often enough for a progress line and for Ctrl-C, too rare to cost anything


class Job:
    """A model with its optimizer, its data and the replicas that train it.

    >>> job = Job("dense", data, replicas=labkit.replicas(2), batch=32)  # doctest: +SKIP
    >>> job.train(epochs=5)                                              # doctest: +SKIP

    batch and scaling fix the global batch: "strong" keeps `batch` for all replicas together, "weak"
    gives `batch` to each. An epoch has whole global batches only. The step runs inside one
    TensorFlow function, hundreds of times a call. In ranks, replicas=labkit.strategies.workers().
    """

    def __init__(
        self,
        model: Any = "dense",
        data: Any = None,
        *,
        replicas: Any = None,
        batch: int = 32,
        scaling: str = "strong",
        optimizer: str = "adam",
        learning_rate: float = 0.001,
        warmup_steps: int = 0,
        dropout: float = 0.2,
        images: int | None = None,
        seed: int = 0,
        reduction: str | None = None,
        streamed: bool = False,
        step: Any = training_step,
    ) -> None:
        began = time.perf_counter()
        self._asked = {
            name: value for name, value in locals().items() if name not in ("self", "began")
        }
        if not hasattr(data, "x_train"):
            raise LabError("A job needs data: pass data=labkit.datasets.mnist().")
        tf = import_tensorflow()
        if replicas is None:
            from labkit.hardware import replicas as choose

            replicas = choose(1)
        if not hasattr(replicas, "strategy"):
            raise LabError(f"replicas={replicas!r} are no replicas: pass labkit.replicas(2).")
        self.data, self.replicas, self.scaling = data, replicas, scaling
        self.seed = seed = whole("seed", seed, 0, 0)
        self.global_batch, self.replica_batch = batches(batch, replicas.count, scaling)
        self._pool = images_for(images, len(data.y_train), self.global_batch)
        self.steps_per_epoch = self._pool // self.global_batch
        self.strategy = replicas.strategy(reduction)
        # A student's step may hold an `if` or a loop over tensors, which only AutoGraph can trace.
        self._step = step if step is training_step else tf.autograph.to_graph(step)
        import keras

        keras.utils.set_random_seed(seed)
        with self.strategy.scope():
            self.model = build(
                model, data.x_train.shape[1:], data.classes, share("dropout", dropout, 0.2)
            )
            self.optimizer = Optimizer(optimizer, learning_rate, warmup_steps)
            self.optimizer.build(self.model.trainable_variables)
            # Each replica adds up its own losses; the sum is read once an epoch, not every step.
            self._loss = tf.Variable(
                0.0,
                trainable=False,
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.SUM,
            )
        train = data.x_train[: self._pool], data.y_train[: self._pool]
        if streamed:
            self.source: Any = Streamed.place(self.strategy, *train, self.global_batch, seed)
        else:
            self.source = Resident.place(self.strategy, *train, self.replica_batch)
        self.epochs: list[Epoch] = []
        self._started = 0
        self.advance = self.program(self.source)
        self._evaluate = _evaluation(self.model, data.x_test.shape[1:])
        # No step at all: kernels are made at the first call, and the first epoch shall be like any.
        self.advance(self.order(0), tf.constant(0), tf.constant(0))
        self.start_seconds = time.perf_counter() - began

    def on(self, replicas: Any, **changed: Any) -> Job:
        """The same job from the beginning, placed on other replicas; keywords change more."""
        asked = {**self._asked, "replicas": replicas}
        if getattr(replicas, "count", 0) == 1:
            asked["reduction"] = None  # one device has nothing to reduce
        return Job(**{**asked, **changed})

    @property
    def images(self) -> int:
        """Images that an epoch trains on: whole global batches; the rest sits this epoch out."""
        return self.steps_per_epoch * self.global_batch

    def order(self, epoch: int) -> Any:
        """The order of an epoch's images: the same for any number of replicas."""
        return order_of(self._pool, epoch, self.seed)

    def program(self, source: Any, *, reduce: bool = True) -> Any:
        """The loop over steps as one TensorFlow function of (order, first step, number of steps).

        With reduce=False each replica keeps its own gradients: the breakdown times that.
        """
        tf = import_tensorflow()
        together = sum_over_replicas if reduce and self.replicas.count > 1 else list
        shared = getattr(self.replicas, "shared_variables", False)
        optimizer = UpdatedOnce(self.optimizer) if shared else self.optimizer

        def one_step(*arguments: Any) -> None:
            images, labels = source.pick(*arguments)
            loss = self._step(
                self.model, optimizer, scaled(images), labels, self.global_batch, together
            )
            self._loss.assign_add(loss)

        # AutoGraph would rewrite every function down to the step, for a second; a loop needs none.
        @tf.function(autograph=False)  # type: ignore[untyped-decorator]
        def advance(order: Any, first: Any, steps: Any) -> None:
            def step(number: Any) -> tuple[Any]:
                self.strategy.run(one_step, args=source.arguments(order, number))
                return (number + 1,)

            # Steps are a chain: iterations in flight cost bookkeeping and win nothing.
            tf.while_loop(
                lambda number: number < first + steps, step, (first,), parallel_iterations=1
            )

        # One trace, for any number of steps: neither the first call nor a shorter one traces again.
        number = tf.TensorSpec((), tf.int32)
        return advance.get_concrete_function(tf.TensorSpec((None,), tf.int32), number, number)

    def train(self, epochs: int = 1, *, evaluate: bool = True) -> Training:
        """Train some more epochs, evaluating after each. Ctrl-C keeps the finished ones."""
        epochs = whole("epochs", epochs, 1, 5)
        try:
            for number in range(1, epochs + 1):
                seconds, loss = self._epoch(f"epoch {number} of {epochs}")
                accuracy = self.evaluate().accuracy if evaluate else float("nan")
                self.epochs.append(Epoch(seconds, loss, accuracy))
        except KeyboardInterrupt:
            return self.record(interrupted=True)
        return self.record()

    def epoch(self) -> float:
        """One epoch without evaluation; returns its mean loss. For `labkit.compare`."""
        return self._epoch("epoch")[1]

    def steps(self, count: int) -> None:
        """Just so many steps, from the beginning of the next epoch's order."""
        tf = import_tensorflow()
        if not 0 < count <= self.steps_per_epoch:
            raise LabError(f"Take 1 to {self.steps_per_epoch} steps at a time, not {count!r}.")
        order = self.order(self._started)
        self._started += 1
        self.advance(order, tf.constant(0), tf.constant(count))
        self.wait()

    def wait(self) -> float:
        """Wait until the devices have done all that was asked; returns the sum of the losses."""
        tf = import_tensorflow()
        return float(tf.convert_to_tensor(self._loss))

    def evaluate(self, part: int = 0, parts: int = 1) -> Score:
        """Loss and accuracy on all test images, or on one of several parts: workers can share.

        >>> job.evaluate(me.index, me.processes)             # doctest: +SKIP
        """
        tf = import_tensorflow()
        if not 0 <= part < parts <= len(self.data.y_test):
            raise LabError(f"There is no part {part!r} of {parts!r} parts; the first is number 0.")
        x, y = self.data.x_test[part::parts], self.data.y_test[part::parts].astype("int32")
        loss, right = 0.0, 0
        for first in range(0, len(y), EVALUATED_AT_ONCE):
            some = slice(first, first + EVALUATED_AT_ONCE)
            added, hit = self._evaluate(tf.constant(x[some]), tf.constant(y[some]))
            loss, right = loss + float(added), right + int(hit)
        return Score(loss / len(y), right / len(y), len(y))

    def record(self, interrupted: bool = False) -> Training:
        """All epochs so far, as plain data."""
        return Training(
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
        """The model's weights as NumPy arrays."""
        return [variable.numpy() for variable in self.model.trainable_variables]

    @property
    def kind(self) -> Kind:
        """Everything that a job times is measured here, on these replicas."""
        return measured(self.replicas.describe())

    def _epoch(self, what: str) -> tuple[float, float]:
        tf = import_tensorflow()
        order = self.order(self._started)
        self._started += 1
        self._loss.assign(0.0)
        stride = max(STEPS_PER_CALL, -(-self.steps_per_epoch // CALLS_PER_EPOCH))
        began = time.perf_counter()
        # A panel that watches shows the epoch as a band; where none does, this costs nothing.
        marked = mark(what.partition(" of ")[0], self.images, by="training")
        with marked, progress(what, self.steps_per_epoch) as advanced:
            for first in range(0, self.steps_per_epoch, stride):
                count = min(stride, self.steps_per_epoch - first)
                self.advance(order, tf.constant(first), tf.constant(count))
                advanced(first + count)
            loss = self.wait() / self.steps_per_epoch
        return time.perf_counter() - began, loss


def _evaluation(model: Any, shape: tuple[int, ...]) -> Any:
    tf = import_tensorflow()

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def evaluate(images: Any, labels: Any) -> tuple[Any, Any]:
        logits = model(scaled(images), training=False)
        hit = tf.argmax(logits, axis=1, output_type=tf.int32) == labels
        return tf.reduce_sum(loss_per_image(labels, logits)), tf.reduce_sum(tf.cast(hit, tf.int32))

    images = tf.TensorSpec((None, *shape), tf.uint8)
    return evaluate.get_concrete_function(images, tf.TensorSpec((None,), tf.int32))
