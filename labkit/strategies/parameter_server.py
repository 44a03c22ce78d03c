"""A parameter server holds the weights, workers compute gradients, a chief schedules the steps.

No worker waits for another: each fetches the weights, computes with its own batch, and sends its
gradient to the server, which applies it at once.

>>> labkit.strategies.parameter_server.train(200, delays={1: 0.05})       # doctest: +SKIP
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any

from labkit.arguments import number, whole
from labkit.cluster import Cluster, tf_config
from labkit.hardware.devices import import_tensorflow
from labkit.kinds import Kind, LabError, measured, rate_text, seconds_text
from labkit.strategies.practice import BATCH, CPU_ONLY, RATE, SEED, STEPS, practice_data
from labkit.training.inputs import epoch_order, scale_images
from labkit.training.models import dense
from labkit.training.optimizers import Optimizer
from labkit.training.step import training_step

ROLE_COUNTS = {"chief": 1, "worker": 2, "ps": 1}
POLL = 0.01  # seconds between two reads of the server's counter


@dataclass(frozen=True)
class Update:
    """A step: a worker fetches the weights and computes a gradient, the server applies it."""

    step: int
    worker: int
    read: int
    """The number of updates of the weights when they were fetched."""
    written: int
    """The number of this update, in the order in which the server applied them."""
    loss: float

    @property
    def staleness(self) -> int:
        """How many updates the server applied between the fetch and this update."""
        return self.written - self.read - 1


@dataclass(frozen=True, repr=False)
class ParameterServerRun:
    """A training with a parameter server: its updates, and how the server counted them."""

    workers: int
    scheduled: int
    """Steps that the chief has scheduled."""
    executed: int
    """Updates counted on the server by assign_add, which loses none."""
    applied: int
    """Updates counted by the kernel that applies gradients."""
    read_then_written: int
    """Updates counted by reading, adding one and writing back: some are overwritten."""
    seconds: float
    updates: tuple[Update, ...]
    kind: Kind

    @property
    def lost(self) -> int:
        """Counts that another worker overwrote between reading and writing."""
        return self.executed - self.read_then_written

    @property
    def repeated(self) -> int:
        """Steps that were done again, because their worker was lost before it reported them."""
        return self.executed - self.scheduled

    @property
    def by_worker(self) -> dict[int, int]:
        """How many of the steps each worker has done."""
        done = Counter(update.worker for update in self.updates)
        return {worker: done[worker] for worker in range(self.workers)}

    @property
    def staleness_counts(self) -> dict[int, int]:
        """How many updates had which staleness."""
        return dict(sorted(Counter(update.staleness for update in self.updates).items()))

    @property
    def mean_staleness(self) -> float:
        """How many updates a gradient missed, on average."""
        return sum(update.staleness for update in self.updates) / len(self.updates)

    def __repr__(self) -> str:
        shares = ", ".join(f"worker {n}: {count}" for n, count in self.by_worker.items())
        stale = ", ".join(f"{count} × {n}" for n, count in self.staleness_counts.items())
        part = max(1, min(20, len(self.updates) // 5))
        first, last = (
            sum(update.loss for update in some) / part
            for some in (self.updates[:part], self.updates[-part:])
        )
        rate = rate_text(self.executed * BATCH / self.seconds)
        return (
            f"{self.workers} workers, 1 parameter server; {self.scheduled} steps scheduled, "
            f"{self.executed} done ({shares}) in {seconds_text(self.seconds)} ({rate})\n"
            f"loss {first:.3f} → {last:.3f} (means of {part} updates)\n"
            f"staleness of the gradients: {stale}; {self.mean_staleness:.2f} on average\n"
            f"updates counted on the server: {self.executed} by assign_add, {self.applied} by the "
            f"gradient kernel, {self.read_then_written} by read-then-write ({self.lost} lost)\n"
            f"{self.kind}"
        )


def train(
    count: int = 200,
    *,
    workers: int = 2,
    delays: Mapping[int, float] | None = None,
    timeout: float = 120.0,
) -> ParameterServerRun:
    """Train the dense model with a chief, workers and a parameter server, each a process.

    `delays` makes workers slow: seconds by worker that its images take to come.
    """
    count, workers = whole("count", count, at_least=1), whole("workers", workers, at_least=1)
    delays = dict(delays or {})
    for worker, seconds in delays.items():
        whole("each worker in delays", worker, at_most=workers - 1)
        number("each delay", seconds, at_least=0, at_most=60)
    with Cluster(roles={**ROLE_COUNTS, "worker": workers}, variables=CPU_ONLY) as c:
        outcome = c.start(training, count, delays, until={0}, show=False).finish(timeout)
    outcome.raise_errors()
    run: ParameterServerRun = outcome.results[0]
    return run


def training(rank: int, count: int, delays: Mapping[int, float]) -> ParameterServerRun:
    """The program of every rank; errors name it."""
    return Chief(join(), delays=delays).steps(count)


def join() -> Any:
    """Returns the coordinator, on the chief. Workers and servers serve in here, and never return.

    So run the program with `until={0}`: the others are stopped after the chief.
    """
    config = tf_config.check()
    if "ps" not in config.cluster:
        raise LabError(
            f"TF_CONFIG has no parameter server: its roles are {', '.join(config.cluster)}. Start "
            'the ranks with labkit.cluster(roles={"chief": 1, "worker": 2, "ps": 1}).'
        )
    # Calls to a worker that has died fail at once, as TensorFlow's guide advises.
    os.environ["GRPC_FAIL_FAST"] = "use_caller"
    tf = import_tensorflow()
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if config.role != "chief":
        threads = tf.compat.v1.ConfigProto()
        # With fewer threads than callers, a server can wait for a call that waits for a thread.
        threads.inter_op_parallelism_threads = config.ranks + 1
        server = tf.distribute.Server(
            resolver.cluster_spec(), job_name=config.role, task_index=config.index,
            protocol="grpc", config=threads,
        )  # fmt: skip
        server.join()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    return tf.distribute.coordinator.ClusterCoordinator(strategy)


class Chief:
    """The model on the parameter server, its images on the workers, and the steps between them."""

    def __init__(self, coordinator: Any, *, delays: Mapping[int, float] | None = None) -> None:
        tf = import_tensorflow()
        import keras

        self.coordinator = coordinator
        self.workers = len(tf_config.check().cluster["worker"])
        keras.utils.set_random_seed(SEED)
        with coordinator.strategy.scope():
            self.model = dense(dropout=0.0)
            self.optimizer = Optimizer("sgd", RATE)
            self.optimizer.build(self.model.trainable_variables)
            self.executed = tf.Variable(0, dtype=tf.int64, trainable=False)
            self.read_then_written = tf.Variable(0, dtype=tf.int64, trainable=False)
            self.applied = tf.Variable(0.0, trainable=False)
        for worker in range(self.workers):
            _write_worker(worker, (delays or {}).get(worker, 0.0))
        self.images = iter(coordinator.create_per_worker_dataset(_images))

    def steps(
        self,
        count: int,
        *,
        one_at_a_time: bool = False,
        progress: Callable[[int], None] = lambda done: None,
    ) -> ParameterServerRun:
        """Schedule this number of steps, and wait until all are done.

        One at a time, the result is that of one device. `progress` is called with the number of
        updates that the server has counted, whenever it has changed.
        """
        tf = import_tensorflow()
        with self.coordinator.strategy.scope():
            log = tf.Variable(tf.zeros((count, 4), tf.float64), trainable=False)
        one_step, began = self._one_step(log), time.monotonic()
        for step in range(count):
            epoch, place = divmod(step, STEPS)
            rows = _order(epoch)[place * BATCH : (place + 1) * BATCH]  # (BATCH,), as one device
            self.coordinator.schedule(one_step, args=(self.images, rows, tf.constant(step)))
            if one_at_a_time:
                self._wait(progress)
        self._wait(progress)
        seconds = time.monotonic() - began
        executed = int(self.executed.numpy())
        progress(executed)
        updates = [
            Update(step, int(worker), int(read), int(written), loss)
            for step, (worker, read, written, loss) in enumerate(log.numpy().tolist())
        ]
        return ParameterServerRun(
            workers=self.workers,
            scheduled=count,
            executed=executed,
            applied=-round(float(self.applied.numpy())),
            read_then_written=int(self.read_then_written.numpy()),
            seconds=seconds,
            updates=tuple(sorted(updates, key=lambda update: update.written)),
            kind=measured(f"{self.workers + 2} processes of this machine"),
        )

    def weights(self) -> list[Any]:
        """Returns the weights as they are on the parameter server now."""
        return [variable.numpy() for variable in self.model.trainable_variables]

    def _one_step(self, log: Any) -> Any:
        """Returns the course's training step as a function that runs on a worker."""
        tf = import_tensorflow()

        @tf.function(autograph=False)  # type: ignore[untyped-decorator]
        def one_step(data: Any, rows: Any, step: Any) -> None:
            images, labels = next(data)
            images, labels = scale_images(tf.gather(images, rows)), tf.gather(labels, rows)
            arrivals = []

            def count_and_apply(gradients: Any, variables: Any) -> None:
                with tf.control_dependencies(gradients):
                    seen = _read(self.read_then_written)
                    arrivals.append(
                        tf.convert_to_tensor(self.executed.assign_add(1, read_value=True))
                    )
                    self.read_then_written.assign(seen + 1)
                    tf.raw_ops.ResourceApplyGradientDescent(
                        var=self.applied.handle, alpha=1.0, delta=1.0
                    )
                    self.optimizer.apply(gradients, variables)

            fetched = _read(self.executed)
            with tf.control_dependencies([fetched]):
                optimizer = SimpleNamespace(apply=count_and_apply)
                loss = training_step(self.model, optimizer, images, labels, BATCH, list)
            row = [_read_worker()[0], fetched, *arrivals, loss]
            row = tf.stack([tf.cast(value, tf.float64) for value in row])  # (4,), a row of the log
            tf.raw_ops.ResourceScatterNdUpdate(ref=log.handle, indices=[[step]], updates=[row])

        return one_step

    def _wait(self, progress: Callable[[int], None]) -> None:
        """Wait for the scheduled steps; only the run's timeout ends the wait for a hung worker."""
        done = 0
        while not self.coordinator.done():
            if (now := int(self.executed.numpy())) != done:
                done = now
                progress(done)
            time.sleep(POLL)
        self.coordinator.join()


@cache
def _order(epoch: int) -> Any:
    return epoch_order(STEPS * BATCH, epoch, SEED)


def _images() -> Any:
    """On a worker, returns all images again and again, each time after the worker's own delay."""
    tf = import_tensorflow()
    # TensorFlow has the operation, and no public Python for it.
    from tensorflow.python.data.experimental.ops.testing import sleep

    data = practice_data()
    every = tf.data.Dataset.from_tensors((data.x_train, data.y_train.astype("int32"))).repeat()
    return every.apply(sleep(tf.cast(_read_worker()[1] * 1e6, tf.int64)))


# A step is traced once, by the chief, and any worker may run it. A variable with the same name on
# every worker tells the step where it runs: the worker's number, and its delay in seconds.
def _worker_variable() -> Any:
    tf = import_tensorflow()
    return tf.raw_ops.VarHandleOp(dtype=tf.float64, shape=[2], shared_name="labkit_this_worker")


def _read_worker() -> Any:
    tf = import_tensorflow()
    return tf.raw_ops.ReadVariableOp(resource=_worker_variable(), dtype=tf.float64)


def _write_worker(worker: int, delay: float) -> None:
    tf = import_tensorflow()
    with tf.device(f"/job:worker/replica:0/task:{worker}/device:CPU:0"):
        value = tf.constant([worker, delay], tf.float64)
        tf.raw_ops.AssignVariableOp(resource=_worker_variable(), value=value)


def _read(variable: Any) -> Any:
    """Returns the value on the server now; the worker may keep a variable's own reading."""
    tf = import_tensorflow()
    return tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)
