"""TensorFlow's cross-device operations and collectives on logical CPUs, in one process.

$ python -m labkit.collectives.bench.tensorflow_devices plan.json

These replicas share one memory. TensorFlow adds up where the tensors lie and hands the same total
to all of them: no copy is sent anywhere, except by its ring.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from labkit.collectives.askers import end_with
from labkit.collectives.bench.rounds import Contender, Group, time_all
from labkit.collectives.bench.speaking import say, telling
from labkit.collectives.operations import Array


def main(path: str) -> None:
    """Measure what the plan says, and report."""
    # A GPU that this process does not need would cost seconds, and memory of others.
    os.environ.update(CUDA_VISIBLE_DEVICES="-1", TF_CPP_MIN_LOG_LEVEL="3")
    plan = json.loads(Path(path).read_text(encoding="utf-8"))
    end_with(plan["asker"])
    ranks = plan["ranks"]
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * ranks
    )
    # Its ring blocks a thread for each replica: with fewer it would wait for ever.
    tf.config.threading.set_inter_op_parallelism_threads(max(2 * ranks, os.cpu_count() or 1))
    steps = {name: _step(tf, name, ranks) for name in plan["contenders"]}

    def contenders(count: int) -> dict[str, Contender]:
        return {name: _contender(step, ranks) for name, step in steps.items()}

    group = Group(0, ranks, lambda: None, lambda value: value)
    found = time_all(plan, contenders, group, telling(silent=False))
    say("result", {"timings": found, "library": f"TensorFlow {tf.__version__}"})


def _step(tf: Any, name: str, ranks: int) -> tuple[Any, Callable[[Any], Any]]:
    devices = [f"/device:CPU:{number}" for number in range(ranks)]
    strategy = tf.distribute.MirroredStrategy(
        devices, cross_device_ops=_cross_device_ops(tf, name, ranks)
    )

    @tf.function  # type: ignore[untyped-decorator]
    def step(values: Any) -> Any:
        def replica(value: Any) -> Any:
            return tf.distribute.get_replica_context().all_reduce("SUM", value)

        return strategy.run(replica, args=(values,))

    return strategy, step


def _cross_device_ops(tf: Any, name: str, ranks: int) -> Any:
    if name == "tensorflow_one_device":
        return tf.distribute.ReductionToOneDevice()
    if name == "tensorflow_hierarchical":
        return tf.distribute.HierarchicalCopyAllReduce()
    # The ring that MultiWorkerMirroredStrategy uses; TensorFlow has no public name for it alone.
    from tensorflow.python.distribute import collective_util, cross_device_ops

    return cross_device_ops.CollectiveAllReduce(
        devices=[f"/job:localhost/replica:0/task:0/device:CPU:{at}" for at in range(ranks)],
        group_size=ranks,
        options=collective_util.Options(
            timeout_seconds=60,
            implementation=tf.distribute.experimental.CommunicationImplementation.RING,
        ),
    )


def _contender(made: tuple[Any, Callable[[Any], Any]], ranks: int) -> Contender:
    strategy, step = made
    held: dict[str, Any] = {}

    def fill(values: Callable[[int], Array]) -> None:
        held["in"] = strategy.experimental_distribute_values_from_function(
            lambda context: np.array(values(context.replica_id_in_sync_group))
        )

    def call() -> None:
        held["out"] = strategy.experimental_local_results(step(held["in"]))
        for one in held["out"]:
            one[:1].numpy()  # the call returns before its work is done: wait for it

    def arrays() -> list[tuple[int, Array]]:
        return [(rank, held["out"][rank].numpy()) for rank in range(ranks)]

    return Contender(fill, call, arrays)


if __name__ == "__main__":
    main(sys.argv[1])
