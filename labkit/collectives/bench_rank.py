"""What the ranks of a measurement run under `run_mpi`: a program for each backend.

For each size: every contender is checked, warmed up, and then called once in each round, in an
order drawn anew. All ranks meet at a barrier before each call, and the slowest rank's time counts:
the collective is done when all ranks have the result. Calls too short for the clock are timed
several at a time. At the end every contender is checked once more.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import random
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from labkit.collectives import programs
from labkit.collectives.records import Array

__all__ = [
    "MARK",
    "MOST_RANKS",
    "Prepared",
    "inputs_of",
    "time_mpi",
    "time_size",
    "time_tensorflow",
    "time_torch",
]

MOST_RANKS = 64  # the sum of what so many hold is exact in float32
MARK = "labkit bench: "  # before the result in what the ranks print
WARM_UP = 3  # calls
SAMPLE = 1e-3  # seconds that one sample should last at least
MOST_CALLS = 200  # in one sample
LEAST_ROUNDS = 3
PERIOD = 97  # a prime: no chunk of a usual size looks like the next one


class Prepared(NamedTuple):
    """A contender at one size: fill its buffer, call it, and give what it holds.

    `fill` takes a function of the rank; `held` gives the buffer of every rank in this process:
    usually one.
    """

    fill: Callable[[Callable[[int], Array]], object]
    call: Callable[[], object]
    held: Callable[[], list[Array]]


Contenders = dict[str, Prepared]


def _time_all(
    comm: Any, plan: dict[str, Any], library: str, prepare: Callable[[int], Contenders]
) -> None:
    draw, timings = random.Random(1), []
    for nbytes in plan["sizes"]:
        timings += time_size(comm, plan, nbytes, prepare(nbytes // 4), draw)
    if comm.Get_rank() == 0:
        print(MARK + json.dumps({"timings": timings, "library": library}), flush=True)


def time_size(
    comm: Any, plan: dict[str, Any], nbytes: int, contenders: Contenders, draw: random.Random
) -> list[tuple[str, int, int, list[float], int]]:
    """What a `Timing` holds, for each contender. All ranks draw the same order of calls."""
    count = nbytes // 4
    calls, wrong, seconds = {}, {}, {}
    start = time.perf_counter()
    for name, one in contenders.items():
        wrong[name] = _checked(comm, one, count, plan["ranks"])
        # Sums of zeros stay zeros, however often they are added up.
        one.fill(lambda _: np.zeros(count, "float32"))
        warm = min(_timed(comm, one, 1) for _ in range(WARM_UP))
        calls[name] = min(MOST_CALLS, max(1, math.ceil(SAMPLE / warm)))
        seconds[name] = list[float]()
    for number in range(plan["rounds"]):
        late = max(comm.allgather(time.perf_counter() - start)) > plan["seconds_per_size"]
        if late and number >= LEAST_ROUNDS:
            break
        for name in draw.sample(list(contenders), len(contenders)):
            seconds[name].append(_timed(comm, contenders[name], calls[name]))
    for name, one in contenders.items():
        wrong[name] += _checked(comm, one, count, plan["ranks"])
    return [(name, nbytes, calls[name], seconds[name], wrong[name]) for name in contenders]


def _timed(comm: Any, one: Prepared, calls: int) -> float:
    """Seconds of one call, on the slowest rank."""
    comm.Barrier()
    start = time.perf_counter()
    for _ in range(calls):
        one.call()
    return float(max(comm.allgather((time.perf_counter() - start) / calls)))


def _checked(comm: Any, one: Prepared, count: int, ranks: int) -> int:
    """Wrong elements on a rank after a call on numbers whose sum is known."""
    one.fill(lambda rank: inputs_of(rank, count))
    comm.Barrier()
    one.call()
    return int(max(comm.allgather(max(wrong_elements(held, ranks) for held in one.held()))))


def inputs_of(rank: int, count: int) -> Array:
    """The buffer of one rank before the call: whole numbers, random and with the rank in them.

    A chunk in the wrong position, a contribution that is missing or counted twice gives another
    sum, and no rounding hides it.
    """
    pattern = np.random.default_rng(rank).integers(0, 100, PERIOD) * MOST_RANKS + rank + 1
    return np.resize(pattern.astype("float32"), count)


def wrong_elements(buffer: Array, ranks: int) -> int:
    """How many elements of a rank's buffer are not the sum over all ranks."""
    total = np.sum([inputs_of(rank, PERIOD) for rank in range(ranks)], axis=0)
    return int(np.count_nonzero(buffer != np.resize(total, buffer.size)))


def time_mpi(comm: Any, buffer: Array, plan: dict[str, Any], own: dict[str, Any]) -> None:
    """The library's own all-reduce and programs, interleaved."""
    from mpi4py import MPI

    rank = comm.Get_rank()

    def prepare(count: int) -> Contenders:
        held = np.empty(count, "float32")

        def fill(values: Callable[[int], Array]) -> None:
            held[:] = values(rank)

        def call_of(name: str) -> Callable[[], object]:
            if name == "mpi":
                return lambda: comm.Allreduce(MPI.IN_PLACE, held)
            return partial(own.get(name) or getattr(programs, name), comm, held)

        return {name: Prepared(fill, call_of(name), lambda: [held]) for name in plan["contenders"]}

    vendor, version = MPI.get_vendor()
    _time_all(comm, plan, f"{vendor} {'.'.join(map(str, version))}, mpi4py", prepare)


def time_torch(comm: Any, buffer: Array, plan: dict[str, Any], own: dict[str, Any]) -> None:
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

    def prepare(count: int) -> Contenders:
        tensor = torch.zeros(count, dtype=torch.float32)

        def fill(values: Callable[[int], Array]) -> None:
            tensor.copy_(torch.from_numpy(values(comm.Get_rank())))

        return {"gloo": Prepared(fill, lambda: dist.all_reduce(tensor), lambda: [tensor.numpy()])}

    _time_all(comm, plan, f"torch {torch.__version__}, gloo", prepare)
    dist.destroy_process_group()


def time_tensorflow(comm: Any, buffer: Array, plan: dict[str, Any], own: dict[str, Any]) -> None:
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

    def fill(values: Callable[[int], Array]) -> None:
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
    _time_all(comm, plan, f"TensorFlow {tf.__version__}", lambda _: contenders)
