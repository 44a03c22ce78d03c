"""A study under TensorFlow: all devices of a machine in one process, or a worker on each host."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from labkit import datasets
from labkit.hardware import replicas
from labkit.hardware.devices import import_tensorflow
from labkit.strategies import workers
from labkit.study.measuring import TARGET, Contender, Makers, measure
from labkit.training import Job
from labkit.training.inputs import cached_batch
from labkit.training.step import sum_over_replicas

PRELOAD = ("tensorflow", "keras", "labkit.training", "labkit.strategies")


def study(rank: int, plan: dict[str, Any]) -> None:
    """Measure the parts of a plan, as one of its ranks."""
    measure(TensorFlow(rank, plan), plan)


class TensorFlow:
    """See `measuring.Workplace`."""

    name = "tensorflow"

    def __init__(self, rank: int, plan: dict[str, Any]) -> None:
        self.rank, self.devices, self._data = rank, plan["devices"], datasets.mnist()
        self._apart = plan["ranks"] > 1
        self.all: Any = workers(timeout=120) if self._apart else replicas(self.devices)
        device = "gpu" if import_tensorflow().config.list_logical_devices("GPU") else "cpu"
        self.gpu, self.on = device == "gpu", self.all.describe()
        self.alone = replicas(devices=[f"{device}:0"])

    def gather(self, *numbers: float) -> list[tuple[float, ...]]:
        """Returns the numbers of every worker."""
        if not self._apart:
            return [numbers]
        tf, mine = import_tensorflow(), [[0.0] * len(numbers) for _ in range(self.all.processes)]
        mine[self.rank] = list(numbers)

        @tf.function(autograph=False)  # type: ignore[untyped-decorator]
        def together(rows: Any) -> Any:
            def of_all(mine: Any) -> Any:
                here = tf.identity(mine)  # on the device of this worker
                return tf.distribute.get_replica_context().all_reduce("sum", here)

            return self.all.strategy().run(of_all, args=(rows,))

        call = self._gathers.setdefault(len(numbers), together)
        total = self.all.strategy().experimental_local_results(call(tf.constant(mine)))[0]
        return [tuple(row) for row in total.numpy().tolist()]

    _gathers: dict[int, Any] = {}  # noqa: RUF012 (a rank has one TensorFlow)

    def rates(self, what: str) -> Makers:
        """Returns products and copies on the first GPU."""
        tf = import_tensorflow()

        def looped(work: float, once: Callable[[Any], Any], *shape: int, kind: str) -> Contender:
            with tf.device(self.alone.devices[0]):
                value = tf.cast(tf.fill(shape, 0.01), kind)

                @tf.function(autograph=False)  # type: ignore[untyped-decorator]
                def many(count: Any) -> Any:
                    loop = tf.while_loop(
                        lambda i, _: i < count, lambda i, x: (i + 1, once(x)),
                        (tf.constant(0), value), parallel_iterations=1,
                    )  # fmt: skip
                    return tf.reduce_sum(tf.cast(loop[1], tf.float32))

            return Contender(lambda count: float(many(tf.constant(count))), work)

        def product(n: int, kind: str) -> Contender:
            return looped(2.0 * n**3, lambda x: tf.linalg.matmul(x, x), n, n, kind=kind)

        if what == "gemm":
            return {f"{k}/8192": partial(product, 8192, k) for k in ("float32", "bfloat16")}
        return {"1 GB": lambda: looped(2e9, lambda x: x + 1, 250_000_000, kind="float32")}

    def all_reduces(self, sizes: tuple[int, ...]) -> Makers:
        """Returns the all-reduce of a training step, a variable on each replica."""
        tf, strategy = import_tensorflow(), self.all.strategy()

        def of(nbytes: int) -> Contender:
            with strategy.scope():
                held = tf.Variable(
                    tf.zeros(nbytes // 4), trainable=False, aggregation=tf.VariableAggregation.SUM,
                    synchronization=tf.VariableSynchronization.ON_READ,
                )  # fmt: skip

            def once() -> None:
                held.assign(sum_over_replicas([held.value()])[0])

            @tf.function(autograph=False)  # type: ignore[untyped-decorator]
            def many(count: Any) -> Any:
                def body(i: Any) -> Any:
                    strategy.run(once)
                    return (i + 1,)

                return tf.while_loop(
                    lambda i: i < count, body, (tf.constant(0),), parallel_iterations=1
                )

            return Contender(lambda count: int(many(tf.constant(count))[0]), nbytes)

        return {str(nbytes): partial(of, nbytes) for nbytes in sizes}

    def steps(self, model: str, batch: int) -> Makers:
        """Returns steps of a Job."""
        kept: dict[str, Job] = {}

        def job(of: Any, scaling: str) -> Job:
            return Job(model, self._data, replicas=of, batch=batch, scaling=scaling)

        def running(one: Job, loop: Any = None) -> Contender:
            tf, order = import_tensorflow(), one.order(0)

            def call(count: int) -> None:
                while count > 0:
                    some = min(count, one.steps_per_epoch)
                    (loop or one.run_steps)(order, tf.constant(0), tf.constant(some))
                    count -= some
                one.synchronize()

            return Contender(call, one.global_batch)

        def alone() -> Contender:
            if self.rank:  # the first worker computes, the others wait
                return Contender(lambda _: None, batch)
            return running(job(self.alone, "strong"))

        def strong() -> Contender:
            kept["strong"] = job(self.all, "strong")
            return running(kept["strong"])

        def without_reduction() -> Contender:
            one = kept["strong"]
            return running(one, one.build_loop(one.inputs, reduce=False))

        def same_images() -> Contender:
            one = kept["strong"]
            same = cached_batch(one.strategy, one.inputs, one.global_batch)
            return running(one, one.build_loop(same, reduce=False))

        if self.devices == 1:
            return {"strong": strong, "same images": same_images}
        both = {"alone": alone, "strong": strong, "weak": lambda: running(job(self.all, "weak"))}
        return {**both, "no reduction": without_reduction, "same images": same_images}

    def run_to_loss(self, batch: int, rate: float) -> Callable[[int, float], tuple[int, float]]:
        """Returns what trains the dense model from its first weights, with another order."""
        tf = import_tensorflow()
        job = Job("dense", self._data, replicas=self.all, batch=batch, learning_rate=rate)
        changed = [*job.model.trainable_variables, *job.optimizer.variables()]
        first = [tf.convert_to_tensor(variable) for variable in changed]
        chunk = max(1, 2048 // batch)

        def run(number: int, seconds: float) -> tuple[int, float]:
            for variable, value in zip(changed, first, strict=True):
                variable.assign(value)
            until, steps, epoch, at = time.monotonic() + seconds, 0, 0, 0
            before, loss = job.synchronize(), TARGET + 1
            order = job.order(1000 * number)
            while loss > TARGET and self.gather(until - time.monotonic())[0][0] > 0:
                if at + chunk > job.steps_per_epoch:
                    epoch, at = epoch + 1, 0
                    order = job.order(1000 * number + epoch)
                job.run_steps(order, tf.constant(at), tf.constant(chunk))
                total = job.synchronize()
                loss, before, at, steps = (total - before) / chunk, total, at + chunk, steps + chunk
            return steps, loss

        return run
