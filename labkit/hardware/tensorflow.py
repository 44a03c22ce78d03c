"""TensorFlow's devices: the one place that starts TensorFlow, splits its devices and joins them.

Every other room gets TensorFlow from here, so that it starts in the same state everywhere:

>>> tf = import_tensorflow()                # doctest: +SKIP
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

from labkit.kinds import LabError

__all__ = [
    "LogicalGpu",
    "import_tensorflow",
    "logical_cpus",
    "logical_gpus",
    "logical_names",
    "make_strategy",
    "one_core_each",
    "placed_operations",
    "reductions_here",
    "split_cpu",
    "split_gpu",
    "use_memory_growth",
]


def import_tensorflow() -> Any:
    """TensorFlow, without its start-up chatter.

    Warnings and errors still show. What you have set in the environment yourself is kept.
    """
    try:
        import tensorflow as tf
    except ImportError as fault:
        raise LabError(
            f"TensorFlow cannot be loaded here ({fault}). "
            "Install the course's environment with `make lab`, and start JupyterLab from it; if it "
            "is installed and this comes again, run `make clean` first."
        ) from fault
    _quieten()
    return tf


@cache
def _quieten() -> None:
    # Once: who turns the log up later wants to see it. In a notebook TensorFlow chooses INFO, and
    # every strategy then prints its devices and every reduction its plan.
    log = logging.getLogger("tensorflow")
    if log.level in (logging.NOTSET, logging.INFO):
        log.setLevel(logging.WARNING)


@dataclass(frozen=True)
class LogicalGpu:
    """One of TensorFlow's GPUs, in its order: a whole chip, or a piece of one."""

    name: str
    physical: int
    piece: int
    pieces: int
    megabytes: int | None


def logical_gpus() -> list[LogicalGpu]:
    """TensorFlow's GPUs as they are, or will be once it is initialised. Asking changes nothing."""
    tf = import_tensorflow()
    found = []
    for physical, gpu in enumerate(tf.config.get_visible_devices("GPU")):
        name = tf.config.experimental.get_device_details(gpu).get("device_name", "unknown GPU")
        pieces = tf.config.get_logical_device_configuration(gpu) or [None]
        for place, piece in enumerate(pieces):
            megabytes = None if piece is None else piece.memory_limit
            found.append(LogicalGpu(name, physical, place, len(pieces), megabytes))
    return found


def logical_cpus() -> int:
    """How many logical CPUs there are, or will be once TensorFlow is initialised."""
    tf = import_tensorflow()
    return len(tf.config.get_logical_device_configuration(_cpu(tf)) or [None])


def split_cpu(pieces: int) -> bool:
    """Cut the CPU into logical ones. False: TensorFlow is initialised, and it is too late."""
    tf = import_tensorflow()
    configuration = [tf.config.LogicalDeviceConfiguration()] * pieces
    # TensorFlow has no public question "are you initialised?", but it refuses a change.
    try:
        tf.config.set_logical_device_configuration(_cpu(tf), configuration)
    except RuntimeError:
        return False
    return True


def one_core_each(count: int, cores: int) -> bool:
    """Let every logical CPU compute with one core. False: TensorFlow's threads are set otherwise.

    By default one logical CPU uses all cores, and a second one can only take some of them away:
    then two replicas cannot be compared with one. As each has one core, they can.
    """
    threads = import_tensorflow().config.threading
    # Initialised, or set by the user: then it stays as it is.
    with suppress(RuntimeError):
        if threads.get_intra_op_parallelism_threads() == 0:
            threads.set_intra_op_parallelism_threads(1)
        if threads.get_intra_op_parallelism_threads() == 1:
            wanted = max(threads.get_inter_op_parallelism_threads(), min(count, cores))
            threads.set_inter_op_parallelism_threads(wanted)
    return bool(threads.get_intra_op_parallelism_threads() == 1)


def split_gpu(pieces: int, megabytes: int) -> bool:
    """Cut the first GPU into logical ones. False: TensorFlow is initialised."""
    tf = import_tensorflow()
    gpus = tf.config.get_visible_devices("GPU")
    piece = tf.config.LogicalDeviceConfiguration(memory_limit=megabytes)
    try:
        # Growth and limits exclude each other, and an earlier request may have set growth.
        for gpu in gpus:
            if not tf.config.get_logical_device_configuration(gpu):
                tf.config.experimental.set_memory_growth(gpu, False)
        tf.config.set_logical_device_configuration(gpus[0], [piece] * pieces)
    except RuntimeError:
        return False
    return True


def use_memory_growth() -> None:
    """Let TensorFlow take GPU memory as it needs it, so that two notebooks can share a GPU."""
    tf = import_tensorflow()
    gpus = tf.config.get_visible_devices("GPU")
    # All GPUs must agree, and a split GPU cannot grow.
    if any(tf.config.get_logical_device_configuration(gpu) for gpu in gpus):
        return
    # Once initialised, TensorFlow keeps the memory that it has taken; that is no fault.
    with suppress(RuntimeError):
        for gpu in gpus:
            tf.config.experimental.set_memory_growth(gpu, True)


def logical_names() -> list[str]:
    """All logical devices, as "/cpu:0". Asking initialises TensorFlow."""
    return [_short(device.name) for device in import_tensorflow().config.list_logical_devices()]


def placed_operations(function: Callable[[], object]) -> list[tuple[str, str]]:
    """The device and the type of every operation in the graphs that a call of `function` runs.

    Without these, a graph only passes values along: arguments, constants, sends and receives.
    """
    import_tensorflow()
    # Only TensorFlow's own profiler tools reach this far; there is no public way.
    from tensorflow.python.eager import context

    running = context.context()
    running.ensure_initialized()
    # A graph is collected when its kernel is made, so kernels made earlier would be missed.
    running.clear_kernel_cache()
    running.enable_graph_collection()
    try:
        function()
        collected = running.export_run_metadata()
    finally:
        running.disable_graph_collection()
    return [
        (_short(node.device), node.op)
        for graph in collected.function_graphs
        for part in graph.partition_graphs
        for node in part.node
        if node.op not in _PASSING
    ]


_PASSING = frozenset(
    {"_Arg", "_DeviceArg", "_Retval", "_DeviceRetval", "_Send", "_Recv", "_HostSend", "_HostRecv"}
    | {"Const", "HostConst", "_EagerConst", "Identity", "IdentityN", "NoOp"}
    | {"Enter", "Exit", "Merge", "Switch", "NextIteration", "LoopCond"}
)


def _short(device: str) -> str:
    kind, _, number = device.rpartition("device:")[2].partition(":")
    return f"/{kind.lower()}:{number}"


def _cpu(tf: Any) -> Any:
    return tf.config.list_physical_devices("CPU")[0]


def reductions_here(count: int, placement: str) -> tuple[str, ...]:
    """The ways of adding up gradients that work on such replicas, the best first.

    NCCL needs a GPU of its own for each replica, and exists for Linux alone. TensorFlow's own
    choice on CPUs, the collective operations, is left out: once a group of two has met in a
    process, a group of four breaks every collective in it.
    """
    if count == 1:
        return ("none",)
    anywhere = ("reduction to one device", "hierarchical copy")
    if placement != "gpus":
        return anywhere
    return ("nccl", *anywhere[::-1]) if sys.platform == "linux" else anywhere[::-1]


def make_strategy(devices: Sequence[str], reduction: str) -> Any:
    """TensorFlow's strategy over these devices."""
    tf = import_tensorflow()
    missing = [name for name in devices if name not in logical_names()]
    if missing:
        raise LabError(
            f"TensorFlow is running without {', '.join(missing)}: these replicas belong to another "
            "session. Choose Kernel → Restart, and call labkit.replicas before anything else."
        )
    if len(devices) == 1:
        return tf.distribute.OneDeviceStrategy(devices[0])
    operations = {
        "nccl": tf.distribute.NcclAllReduce,
        "hierarchical copy": tf.distribute.HierarchicalCopyAllReduce,
        "reduction to one device": tf.distribute.ReductionToOneDevice,
    }
    return tf.distribute.MirroredStrategy(list(devices), cross_device_ops=operations[reduction]())
