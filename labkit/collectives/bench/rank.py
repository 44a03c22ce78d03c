"""One process of a measurement: python -m labkit.collectives.bench.rank plan.json

The backend of the plan says what it is: one rank under mpiexec, one rank of torch.distributed, or
all of TensorFlow's replicas.
"""

from __future__ import annotations

import base64
import importlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from labkit.collectives import programs
from labkit.collectives.bench.loop import Prepared, Ranks, time_all
from labkit.collectives.bench.protocol import report
from labkit.collectives.mpi.exit_with_parent import exit_with_parent
from labkit.collectives.mpi.gforker import clear
from labkit.collectives.records import Array
from labkit.shipping import unpack_program

Plan = dict[str, Any]
PROGRESS = 0.2  # seconds between two reports


def main(path: str) -> None:
    """Measure what the plan says; rank 0 reports."""
    plan = json.loads(Path(path).read_text(encoding="utf-8"))
    plan["folder"] = Path(path).parent
    launcher = os.getppid()

    def clean_up() -> None:  # the process that would have done it is no more
        clear(launcher)
        shutil.rmtree(plan["folder"], ignore_errors=True)

    exit_with_parent(plan["parent"], clean_up)
    {"mpi": _mpi, "torch": _torch, "tensorflow": _tensorflow}[plan["backend"]](plan)


def _measure(
    plan: Plan, ranks: Ranks, library: str, prepare: Callable[[int], dict[str, Prepared]]
) -> None:
    last = 0.0

    def progress(share: float) -> None:
        nonlocal last
        if ranks.rank == 0 and time.monotonic() - last > PROGRESS:
            last = time.monotonic()
            report("progress", share)

    timings = time_all(plan, prepare, ranks, progress)
    if ranks.rank == 0:
        report("result", {"timings": timings, "library": library})


# --- MPI: the library's own collectives and programs, interleaved


def _mpi(plan: Plan) -> None:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    rank = comm.Get_rank()

    def largest(value: float) -> float:
        return float(comm.allreduce(value, op=MPI.MAX))

    try:
        own = {name: _unpacked(packed) for name, packed in plan["packed"].items()}

        def prepare(count: int) -> dict[str, Prepared]:
            buffer = np.empty(count, plan["dtype"])

            def fill(values: Callable[[int], Array]) -> None:
                buffer[:] = values(rank)

            def call_of(name: str) -> Callable[[], object]:
                if name == "mpi":
                    return _library_call(MPI, comm, plan["collective"], buffer)
                return partial(own.get(name) or getattr(programs, name), comm, buffer)

            return {
                name: Prepared(fill, call_of(name), lambda: [(rank, buffer)])
                for name in plan["contenders"]
            }

        vendor, version = MPI.get_vendor()
        library = f"{vendor} {'.'.join(map(str, version))}, mpi4py"
        _measure(plan, Ranks(rank, comm.Get_size(), comm.Barrier, largest), library, prepare)
    except Exception as fault:  # noqa: BLE001 (whatever a program raises is reported, and ends all)
        report("fault", f"rank {rank} raised {type(fault).__name__}: {fault}")
        comm.Abort(1)


def _unpacked(packed: str) -> Callable[..., Any]:
    return unpack_program(base64.b64decode(packed))[0]


def _library_call(mpi: Any, comm: Any, collective: str, buffer: Array) -> Callable[[], object]:
    """The MPI call that does what our programs do, in place where MPI can."""
    here = mpi.IN_PLACE
    if collective == "reduce":
        ends = (here, buffer) if comm.Get_rank() == 0 else (buffer, None)
        return lambda: comm.Reduce(*ends, root=0)
    if collective == "reduce_scatter":
        # In place, MPI leaves the result at the front; our program, in the rank's own chunk.
        own = buffer.reshape(comm.Get_size(), -1)[comm.Get_rank()]
        received = np.empty_like(own)

        def reduce_scatter() -> None:
            comm.Reduce_scatter_block(buffer, received)
            own[:] = received

        return reduce_scatter
    return {
        "all_reduce": lambda: comm.Allreduce(here, buffer),
        "broadcast": lambda: comm.Bcast(buffer, root=0),
        "all_gather": lambda: comm.Allgather(here, buffer),
        "all_to_all": lambda: comm.Alltoall(here, buffer),
    }[collective]


# --- torch.distributed: gloo between processes on loopback, nccl between GPUs


def _torch(plan: Plan) -> None:
    # By name: it is an extra that most readers of this file do not have.
    torch: Any = importlib.import_module("torch")
    dist: Any = importlib.import_module("torch.distributed")
    (name,) = plan["contenders"]
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    device = torch.device("cuda", rank) if name == "nccl" else torch.device("cpu")
    if name == "nccl":
        torch.cuda.set_device(device)
    dist.init_process_group(
        name,
        init_method=f"file://{plan['folder']}/store",  # no port: only this user can connect
        rank=rank,
        world_size=plan["ranks"],
        timeout=timedelta(seconds=60),
    )

    def largest(value: float) -> float:
        held = torch.tensor([value], dtype=torch.float64, device=device)
        dist.all_reduce(held, op=dist.ReduceOp.MAX)
        return float(held.item())

    def prepare(count: int) -> dict[str, Prepared]:
        tensor = torch.zeros(count, dtype=getattr(torch, plan["dtype"]), device=device)

        def fill(values: Callable[[int], Array]) -> None:
            tensor.copy_(torch.from_numpy(np.ascontiguousarray(values(rank))))

        def call() -> None:
            if plan["collective"] == "all_reduce":
                dist.all_reduce(tensor)
            elif plan["collective"] == "broadcast":
                dist.broadcast(tensor, src=0)
            else:
                dist.reduce(tensor, dst=0)
            if device.type == "cuda":
                torch.cuda.synchronize(device)

        return {name: Prepared(fill, call, lambda: [(rank, tensor.cpu().numpy())])}

    ranks = Ranks(rank, plan["ranks"], dist.barrier, largest)
    _measure(plan, ranks, f"torch {torch.__version__}, {name}", prepare)
    dist.destroy_process_group()


# --- TensorFlow: cross-device operations on logical CPUs, all replicas in one process
#
# These replicas share one memory. TensorFlow adds up where the tensors lie and hands the same total
# to all of them: no copy is sent anywhere, except by its ring.


def _tensorflow(plan: Plan) -> None:
    # Without the GPUs: this process would take seconds and memory for them.
    os.environ.update(CUDA_VISIBLE_DEVICES="-1", TF_CPP_MIN_LOG_LEVEL="3")
    import tensorflow as tf

    count = plan["ranks"]
    cpu = tf.config.list_physical_devices("CPU")[0]
    logical = [tf.config.LogicalDeviceConfiguration()] * count
    tf.config.set_logical_device_configuration(cpu, logical)
    # Its ring blocks a thread for each replica: with fewer it would wait for ever.
    tf.config.threading.set_inter_op_parallelism_threads(max(2 * count, os.cpu_count() or 1))
    steps = {name: _tensorflow_step(tf, name, count) for name in plan["contenders"]}

    def prepare(_: int) -> dict[str, Prepared]:
        return {name: _tensorflow_prepared(*step, count) for name, step in steps.items()}

    ranks = Ranks(0, count, lambda: None, lambda value: value)
    _measure(plan, ranks, f"TensorFlow {tf.__version__}", prepare)


def _tensorflow_step(tf: Any, name: str, ranks: int) -> tuple[Any, Callable[[Any], Any]]:
    devices = [f"/device:CPU:{number}" for number in range(ranks)]
    operations = _cross_device_ops(tf, name, ranks)
    strategy = tf.distribute.MirroredStrategy(devices, cross_device_ops=operations)

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
        devices=[f"/job:localhost/replica:0/task:0/device:CPU:{rank}" for rank in range(ranks)],
        group_size=ranks,
        options=collective_util.Options(
            timeout_seconds=60,
            implementation=tf.distribute.experimental.CommunicationImplementation.RING,
        ),
    )


def _tensorflow_prepared(strategy: Any, step: Callable[[Any], Any], ranks: int) -> Prepared:
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

    return Prepared(fill, call, arrays)


if __name__ == "__main__":
    main(sys.argv[1])
