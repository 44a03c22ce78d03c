"""The all-reduces of other libraries, timed in the same way as labkit's own programs."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np

from labkit.collectives import bench
from labkit.collectives.bench_rank import Prepared, time_all


def measure(name: str, **plan: Any) -> bench.Bench | None:
    """The library's all-reduce, or None where it is not installed."""
    module, program, processes = LIBRARIES[name]
    if importlib.util.find_spec(module) is None:
        return None
    plan["contenders"] = [name]
    return bench.time_in_ranks(program, plan, processes or plan["ranks"], 300.0)


def time_torch(comm: Any, buffer: Any, plan: dict[str, Any]) -> None:
    """torch.distributed with gloo, between processes on loopback."""
    os.environ.update(GLOO_SOCKET_IFNAME="lo")
    # By name: it is an extra that most readers of this file do not have.
    torch: Any = importlib.import_module("torch")
    dist: Any = importlib.import_module("torch.distributed")
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{sys.argv[1]}/store",  # in the run's folder: no port for other users
        rank=comm.Get_rank(),
        world_size=plan["ranks"],
        timeout=timedelta(seconds=60),
    )

    def prepare(count: int) -> dict[str, Prepared]:
        tensor = torch.zeros(count, dtype=torch.float32)

        def fill(values: Callable[[int], np.ndarray]) -> None:
            tensor.copy_(torch.from_numpy(values(comm.Get_rank())))

        return {"gloo": Prepared(fill, lambda: dist.all_reduce(tensor), lambda: [tensor.numpy()])}

    time_all(comm, plan, f"torch {torch.__version__}, gloo", prepare)
    dist.destroy_process_group()


def time_tensorflow(comm: Any, buffer: Any, plan: dict[str, Any]) -> None:
    """The ring of MultiWorkerMirroredStrategy on logical CPUs, all replicas in one process."""
    # Without the GPUs: this process would take seconds and memory for them.
    os.environ.update(CUDA_VISIBLE_DEVICES="-1", TF_CPP_MIN_LOG_LEVEL="3")
    import tensorflow as tf
    from tensorflow.python.distribute import collective_util, cross_device_ops

    count = plan["ranks"]
    cpu = tf.config.list_physical_devices("CPU")[0]
    logical = [tf.config.LogicalDeviceConfiguration()] * count
    tf.config.set_logical_device_configuration(cpu, logical)
    # Its ring blocks a thread for each replica: with fewer it would wait for ever.
    tf.config.threading.set_inter_op_parallelism_threads(max(2 * count, os.cpu_count() or 1))
    devices = [f"/device:CPU:{number}" for number in range(count)]
    # TensorFlow has no public name for this operation alone.
    ring = cross_device_ops.CollectiveAllReduce(
        devices=[f"/job:localhost/replica:0/task:0{device}" for device in devices],
        group_size=count,
        options=collective_util.Options(
            timeout_seconds=60,
            implementation=tf.distribute.experimental.CommunicationImplementation.RING,
        ),
    )
    strategy = tf.distribute.MirroredStrategy(devices, ring)

    def replica(value: Any) -> Any:
        return tf.distribute.get_replica_context().all_reduce("SUM", value)

    step = tf.function(lambda values: strategy.run(replica, args=(values,)))
    held: dict[str, Any] = {}

    def fill(values: Callable[[int], np.ndarray]) -> None:
        held["in"] = strategy.experimental_distribute_values_from_function(
            lambda context: np.array(values(context.replica_id_in_sync_group))
        )

    def call() -> None:
        held["out"] = strategy.experimental_local_results(step(held["in"]))
        for one in held["out"]:
            one[:1].numpy()  # the call returns before its work is done: wait for it

    contenders = {
        "tensorflow_ring": Prepared(fill, call, lambda: [one.numpy() for one in held["out"]])
    }
    time_all(comm, plan, f"TensorFlow {tf.__version__}", lambda _: contenders)


# The module, the program of its ranks, and how many processes: TensorFlow's replicas are in one.
LIBRARIES: dict[str, tuple[str, Callable[..., None], int]] = {
    "tensorflow_ring": ("tensorflow", time_tensorflow, 1),
    "gloo": ("torch", time_torch, 0),
}
