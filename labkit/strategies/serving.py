"""The chief's side of parameter servers: hands out the course's one step, and keeps the books."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

from labkit.arguments import whole
from labkit.cluster import tf_config
from labkit.hardware.devices import import_tensorflow
from labkit.kinds import LabError, measured, seconds_text
from labkit.strategies import checkpoints
from labkit.strategies.cases import BATCH, SEED, practice
from labkit.strategies.on_workers import at_worker, read_here, slowed, write_here
from labkit.strategies.served import Served, Update
from labkit.training.inputs import epoch_order, scale_images
from labkit.training.models import build
from labkit.training.optimizers import Optimizer
from labkit.training.step import training_step

__all__ = ["GENTLE", "Chief", "delays_of"]

# With 0.1, one device learns the practice data; with gradients that are one update late, it is too
# much for them: the lecture on asynchronous updates has the formula.
GENTLE = 0.02
_ANSWER = 1.0  # seconds for a worker to say its name
_LOOK = 0.01  # seconds between two looks at what is done
_COLUMNS = 6  # worker, read, written, loss, began, ended


class Chief:
    """A model on the parameter servers, its data on the workers, and the steps between them."""

    def __init__(
        self,
        coordinator: Any,
        *,
        batch: int = BATCH,
        data: Any = None,
        optimizer: str = "sgd",
        learning_rate: float = GENTLE,
        one_at_a_time: bool = False,
        delays: Mapping[int, float] | None = None,
        patience: float = 20.0,
        say_every: int = 50,
    ) -> None:
        tf = import_tensorflow()
        import keras

        self.coordinator, self.strategy = coordinator, coordinator.strategy
        self.data = practice() if data is None else data
        self.batch = whole("batch", batch, at_least=1)
        self.one_at_a_time, self.patience, self.say_every = one_at_a_time, patience, say_every
        cluster = tf_config.check().cluster
        self.workers, self.servers = len(cluster["worker"]), len(cluster["ps"])
        keras.utils.set_random_seed(SEED)
        with self.strategy.scope():
            shape = self.data.x_train.shape[1:]
            self.model = build("dense", shape, self.data.classes, dropout=0.0)
            self.optimizer = Optimizer(optimizer, learning_rate)
            self.optimizer.build(self.model.trainable_variables)
            self._executed = tf.Variable(0, dtype=tf.int64, trainable=False)
            self._careless = tf.Variable(0, dtype=tf.int64, trainable=False)
            self._descended = tf.Variable(0.0, trainable=False)
        self._name_workers(delays_of(delays, self.workers))
        self._images = iter(coordinator.create_per_worker_dataset(self._dataset))
        self._handed_out = self._first = 0
        self._seconds = 0.0
        self._updates: list[Update] = []

    def steps(self, count: int, after_step: Callable[[int], None] | None = None) -> None:
        """Hand out so many steps, and wait until all are done.

        One at a time, `after_step` is called with the number of steps done, after each.
        """
        tf = import_tensorflow()
        rows = self._rows(count)
        with self.strategy.scope():
            log = tf.Variable(tf.zeros((count, _COLUMNS), tf.float64), trainable=False)
        one_step = self._one_step(log)
        started, before = time.time(), self.done()
        for number in range(count):
            arguments = (self._images, tf.constant(rows[number]), tf.constant(number))
            self.coordinator.schedule(one_step, args=arguments)
            self._handed_out += 1
            if self.one_at_a_time:
                self._wait(log, before, number + 1)
                if after_step is not None:
                    after_step(self._handed_out)
        self._wait(log, before, count)
        self._seconds += time.time() - started
        self._updates += _updates(log.numpy(), started, len(self._updates))

    def done(self) -> int:
        """How many updates the server has counted; an error when it is not there any more."""
        return int(self._executed.numpy())

    def weights(self) -> list[Any]:
        """The weights as they are on the parameter servers now."""
        return [variable.numpy() for variable in self.model.trainable_variables]

    def save(self, folder: str | Path) -> Path:
        """A checkpoint of what is on the servers. Only between steps: call it one at a time."""
        values = [variable.numpy() for variable in self._variables()]
        return checkpoints.write(folder, self._handed_out, values, self._identity())

    def restore(self, folder: str | Path) -> int:
        """Put the folder's checkpoint on the servers; the step after which it was written, or 0."""
        step, values = checkpoints.read(folder, self._identity())
        for variable, value in zip(self._variables(), values, strict=bool(step)):
            variable.assign(value)
        self._handed_out = self._first = step
        return step

    def _variables(self) -> list[Any]:
        return [*self.model.weights, *self.optimizer.variables()]

    def _identity(self) -> str:
        rule = self.optimizer
        return (
            f"{self.model.name} on parameter servers, {len(self.data.y_train)} images in batches "
            f"of {self.batch}, {rule.rule} with rate {rule.learning_rate:g}"
        )

    def record(self) -> Served:
        """All steps so far, as plain data."""
        return Served(
            workers=self.workers,
            servers=self.servers,
            batch=self.batch,
            scheduled=self._handed_out - self._first,
            executed=self.done(),
            descended=-round(float(self._descended.numpy())),
            careless=int(self._careless.numpy()),
            seconds=self._seconds,
            updates=tuple(sorted(self._updates, key=lambda update: update.written)),
            kind=measured(f"{self.workers + self.servers + 1} processes of this machine"),
        )

    def _name_workers(self, delays: Sequence[float]) -> None:
        for number, delay in enumerate(delays):
            at_worker(number, partial(write_here, [float(number), delay]))

    def _dataset(self) -> Any:
        """Runs on each worker: all images, again and again, after the worker's own delay."""
        tf = import_tensorflow()
        images, labels = self.data.x_train, self.data.y_train.astype("int32")
        every = tf.data.Dataset.from_tensors((images, labels)).repeat()
        delay = read_here()[1]
        return every.apply(lambda source: slowed(source, delay))

    def _rows(self, count: int) -> list[Any]:
        """Which images each step takes: those of one device, in the same order."""
        import numpy as np

        there = len(self.data.y_train)
        each = there // self.batch
        if not each:
            raise LabError(f"A batch of {self.batch} needs as many images; there are {there}.")
        rows: list[Any] = []
        first, epochs = self._handed_out, range((self._handed_out + count - 1) // each + 1)
        orders = {epoch: np.asarray(epoch_order(there, epoch, SEED)) for epoch in epochs}
        for step in range(first, first + count):
            place = step % each * self.batch
            rows.append(orders[step // each][place : place + self.batch])
        return rows

    def _one_step(self, log: Any) -> Any:
        tf = import_tensorflow()

        @tf.function(autograph=False)  # type: ignore[untyped-decorator]
        def one_step(data: Any, rows: Any, number: Any) -> None:
            began = tf.timestamp()
            images, labels = next(data)
            images, labels = scale_images(tf.gather(images, rows)), tf.gather(labels, rows)
            read = _read(self._executed)
            with tf.control_dependencies([read]):
                counted = _Counted(self)
                loss = training_step(self.model, counted, images, labels, self.batch, list)
            me = read_here()[0]
            with tf.control_dependencies([counted.number]):
                row = [me, read, counted.number, loss, began, tf.timestamp()]
            row = tf.stack([tf.cast(value, tf.float64) for value in row])
            tf.raw_ops.ResourceScatterNdUpdate(ref=log.handle, indices=[[number]], updates=[row])

        return one_step

    def _wait(self, log: Any, before: int, wanted: int) -> None:
        """Until the steps handed out are done; with an end, where TensorFlow would have none."""
        done, said, since = before, before // self.say_every, time.monotonic()
        while not self.coordinator.done():
            now = self.done()
            if now != done:
                done, since = now, time.monotonic()
            elif time.monotonic() - since > self.patience:
                raise LabError(self._stuck(log, wanted))
            if not self.one_at_a_time and now // self.say_every > said:
                said = now // self.say_every
                print(f"{now - before} of {wanted} steps are done", flush=True)
            time.sleep(_LOOK)
        self.coordinator.join()

    def _stuck(self, log: Any, wanted: int) -> str:
        finished = int((log.numpy()[:wanted, -1] > 0).sum())
        silent = [f"worker {number}" for number in self._silent()]
        told = (
            f"{finished} of {wanted} steps are done, and nothing has come for "
            f"{seconds_text(self.patience)}."
        )
        if not silent:
            return f"{told} All workers answer: their steps take long. Give more patience=."
        who = " and ".join(silent)
        return (
            f"{told} The chief waits for {who}, without an answer and without an end. End such a "
            "process: a dead worker is survived, a hanging one is not."
        )

    def _silent(self) -> list[int]:
        """The workers that do not even say their name."""
        answered: set[int] = set()

        def ask(number: int) -> None:
            at_worker(number, lambda: read_here().numpy())
            answered.add(number)

        # There is no deadline for such a question: who gets no answer is left behind.
        asking = [Thread(target=ask, args=(n,), daemon=True) for n in range(self.workers)]
        for thread in asking:
            thread.start()
        until = time.monotonic() + _ANSWER
        for thread in asking:
            thread.join(max(0.0, until - time.monotonic()))
        return [number for number in range(self.workers) if number not in answered]


class _Counted:
    """An optimizer that counts updates on the server, in three ways, as they arrive."""

    def __init__(self, chief: Any) -> None:
        self._chief = chief
        self.number: Any = None

    def apply(self, gradients: Sequence[Any], variables: Sequence[Any]) -> None:
        """Count, and apply; not before the gradients are there."""
        tf = import_tensorflow()
        chief = self._chief
        with tf.control_dependencies(gradients):
            careless = _read(chief._careless)
            added = chief._executed.assign_add(1, read_value=True)
            self.number = tf.convert_to_tensor(added)
            chief._careless.assign(careless + 1)
            tf.raw_ops.ResourceApplyGradientDescent(
                var=chief._descended.handle, alpha=1.0, delta=1.0
            )
            chief.optimizer.apply(gradients, variables)


def _read(variable: Any) -> Any:
    """The value on the server now: a variable's own reading may be kept by the worker."""
    tf = import_tensorflow()
    return tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)


def delays_of(delays: Mapping[int, float] | None, workers: int) -> list[float]:
    """The delay of each worker, in seconds.

    >>> delays_of({1: 0.05}, workers=2)
    [0.0, 0.05]
    """
    given = {} if delays is None else delays
    sound = isinstance(given, Mapping) and all(
        worker in range(workers) and isinstance(seconds, (int, float)) and 0 <= seconds <= 60
        for worker, seconds in given.items()
    )
    if not sound:
        raise LabError(
            f"delays={given!r} cannot be: give seconds from 0 to 60 by worker, as in {{0: 0.05}}. "
            f"The workers are 0 to {workers - 1}."
        )
    return [float(given.get(worker, 0.0)) for worker in range(workers)]


def _updates(log: Any, started: float, before: int) -> list[Update]:
    return [
        Update(
            before + number, int(worker), began - started, ended - started, int(read),
            int(written), float(loss),
        )
        for number, (worker, read, written, loss, began, ended) in enumerate(log.tolist())
    ]  # fmt: skip
