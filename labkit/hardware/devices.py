"""TensorFlow's devices: the only place that starts TensorFlow and splits its devices.

Every other room gets TensorFlow from here, so that it starts in the same state everywhere:

>>> tf = import_tensorflow()                # doctest: +SKIP
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
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
    "short_name",
    "split_cpu",
    "split_gpu",
    "use_memory_growth",
]


def import_tensorflow() -> Any:
    """TensorFlow, without its start-up messages; warnings and errors still show."""
    try:
        import tensorflow as tf
    except ImportError as fault:
        raise LabError(
            f"TensorFlow cannot be loaded here ({fault}). "
            "Run `make lab`, and start JupyterLab from it."
        ) from fault
    _quieten()
    return tf


@cache
def _quieten() -> None:
    # Once: a user may raise the level later. In a notebook TensorFlow chooses INFO, and every
    # strategy then prints its devices and every reduction its plan.
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


def logical_gpus() -> list[LogicalGpu]:
    """TensorFlow's GPUs as they are, or will be once it is initialised."""
    tf = import_tensorflow()
    found: list[LogicalGpu] = []
    for physical, gpu in enumerate(tf.config.get_visible_devices("GPU")):
        name = tf.config.experimental.get_device_details(gpu).get("device_name", "unknown GPU")
        pieces = len(tf.config.get_logical_device_configuration(gpu) or [None])
        found += [LogicalGpu(name, physical, number, pieces) for number in range(pieces)]
    return found


def logical_cpus() -> int:
    """How many logical CPUs there are, or will be once TensorFlow is initialised."""
    tf = import_tensorflow()
    return len(tf.config.get_logical_device_configuration(_cpu(tf)) or [None])


def logical_names() -> list[str]:
    """All logical devices, as "/cpu:0". This call initialises TensorFlow."""
    return [short_name(device.name) for device in import_tensorflow().config.list_logical_devices()]


def short_name(device: str) -> str:
    """TensorFlow's long name of a device as "/cpu:0".

    >>> short_name("/job:localhost/replica:0/task:0/device:CPU:1")
    '/cpu:1'
    """
    kind, _, number = device.rpartition("device:")[2].partition(":")
    return f"/{kind.lower()}:{number}"


def split_cpu(pieces: int) -> bool:
    """Split the CPU into logical ones. False: TensorFlow is initialised, and it is too late."""
    tf = import_tensorflow()
    # TensorFlow has no public question "are you initialised?", but it refuses a change.
    try:
        tf.config.set_logical_device_configuration(
            _cpu(tf), [tf.config.LogicalDeviceConfiguration()] * pieces
        )
    except RuntimeError:
        return False
    return True


def one_core_each(count: int, cores: int) -> bool:
    """Give every logical CPU one core. False: TensorFlow's threads have been set otherwise.

    By default one logical CPU uses all cores, and a second one can only take some of them away:
    then two replicas cannot be compared with one. So each operation gets one thread (intra-op),
    and the pool that runs operations (inter-op) a thread for each replica, at least two: with one,
    a step that waits for its input would block the thread that must make it. All devices share
    the pool, so a single device can still run two independent operations at once.
    """
    threads = import_tensorflow().config.threading
    with suppress(RuntimeError):  # initialised: then it stays as it is
        if threads.get_intra_op_parallelism_threads() in (0, 1):
            threads.set_intra_op_parallelism_threads(1)
            wanted = max(2, min(count, cores), threads.get_inter_op_parallelism_threads())
            threads.set_inter_op_parallelism_threads(wanted)
    return bool(threads.get_intra_op_parallelism_threads() == 1)


def split_gpu(pieces: int, megabytes: int) -> bool:
    """Split the first GPU into logical ones. False: TensorFlow is initialised."""
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
    # TensorFlow wants the same setting for all GPUs, and a split GPU cannot grow.
    if any(tf.config.get_logical_device_configuration(gpu) for gpu in gpus):
        return
    with suppress(RuntimeError):  # initialised: it keeps the memory that it has taken
        for gpu in gpus:
            tf.config.experimental.set_memory_growth(gpu, True)


def make_strategy(devices: Sequence[str], reduction: str) -> Any:
    """TensorFlow's strategy over these devices."""
    tf = import_tensorflow()
    if len(devices) == 1:
        return tf.distribute.OneDeviceStrategy(devices[0])
    operations = {
        "nccl": tf.distribute.NcclAllReduce,
        "hierarchical copy": tf.distribute.HierarchicalCopyAllReduce,
        "reduction to one device": tf.distribute.ReductionToOneDevice,
    }
    return tf.distribute.MirroredStrategy(list(devices), cross_device_ops=operations[reduction]())


def _cpu(tf: Any) -> Any:
    return tf.config.list_physical_devices("CPU")[0]
