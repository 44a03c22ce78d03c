"""TensorFlow's devices: the only place that starts TensorFlow and splits its devices."""

import functools
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from labkit.kinds import LabError, in_the_lab


def import_tensorflow() -> Any:
    """Returns the module tensorflow."""
    try:
        import tensorflow as tf
    except ImportError as fault:
        raise LabError(
            f"TensorFlow cannot be loaded here ({fault}). "
            + in_the_lab("Run `make lab`, and start JupyterLab from it.")
        ) from fault
    _leave_iterators_untuned(tf)
    return tf


@functools.cache
def _leave_iterators_untuned(tf: Any) -> None:
    """A thread tunes each replica's iterator in TensorFlow 2.21, and may miss its end.

    Then whoever deletes the iterator, as `fit` does, waits for as long as it lived, up to a minute.
    """
    from tensorflow.python.data.ops import multi_device_iterator_ops as iterators

    options, make = tf.data.Options(), iterators._create_device_dataset
    options.autotune.enabled = False
    iterators._create_device_dataset = lambda *given: make(*given).with_options(options)


@dataclass(frozen=True)
class LogicalGpu:
    """One of TensorFlow's GPUs, in its order: a whole chip, or a piece of one."""

    name: str
    physical: int
    piece: int
    pieces: int

    def __str__(self) -> str:
        chip = f"{self.name} (GPU {self.physical})"
        return chip if self.pieces == 1 else f"piece {self.piece + 1} of {self.pieces} of {chip}"


def logical_gpus() -> list[LogicalGpu]:
    """Returns TensorFlow's GPUs as they are, or will be once it is initialised."""
    config = import_tensorflow().config
    found: list[LogicalGpu] = []
    for physical, gpu in enumerate(config.get_visible_devices("GPU")):
        name = config.experimental.get_device_details(gpu).get("device_name", "unknown GPU")
        pieces = len(config.get_logical_device_configuration(gpu) or [None])
        found += [LogicalGpu(name, physical, number, pieces) for number in range(pieces)]
    return found


def logical_cpus() -> int:
    """Returns how many logical CPUs there are, or will be once TensorFlow is initialised."""
    config = import_tensorflow().config
    (cpu,) = config.get_visible_devices("CPU")
    return len(config.get_logical_device_configuration(cpu) or [None])


def split(kind: str, pieces: int, megabytes: int | None = None) -> bool:
    """Split the CPU or the first GPU. Returns False where TensorFlow is initialised already."""
    config = import_tensorflow().config
    devices = config.get_visible_devices(kind)
    piece = config.LogicalDeviceConfiguration(memory_limit=megabytes)
    with suppress(RuntimeError):
        # Growth and limits exclude each other, and a program may have set growth.
        for gpu in devices if kind == "GPU" else ():
            if not config.get_logical_device_configuration(gpu):
                config.experimental.set_memory_growth(gpu, False)
        config.set_logical_device_configuration(devices[0], [piece] * pieces)
        return True
    return False


def one_core_each(count: int, cores: int) -> bool:
    """Give every logical CPU one core. Returns False where threads have been set otherwise.

    By default one logical CPU uses all cores, and two replicas cannot be compared with one. So each
    operation gets one thread (intra-op), and the pool that runs operations (inter-op) a thread for
    each replica, at least two: a step that waits for its input must not block what makes it.
    """
    threads = import_tensorflow().config.threading
    with suppress(RuntimeError):  # initialised: then it stays as it is
        if threads.get_intra_op_parallelism_threads() in (0, 1):
            threads.set_intra_op_parallelism_threads(1)
            wanted = max(2, min(count, cores), threads.get_inter_op_parallelism_threads())
            threads.set_inter_op_parallelism_threads(wanted)
    return bool(threads.get_intra_op_parallelism_threads() == 1)


DEFAULT_REDUCTION = "collective operations"  # of MirroredStrategy, if it is given no other


def make_strategy(devices: Sequence[str], reduction: str) -> Any:
    """Returns TensorFlow's strategy over these devices."""
    tf = import_tensorflow()
    if len(devices) == 1:
        if "cpu" in devices[0] and tf.config.threading.get_intra_op_parallelism_threads() == 1:
            return _one_core_strategy(tf, devices[0])
        return tf.distribute.OneDeviceStrategy(devices[0])
    operations = {
        "nccl": tf.distribute.NcclAllReduce,
        "hierarchical copy": tf.distribute.HierarchicalCopyAllReduce,
        "reduction to one device": tf.distribute.ReductionToOneDevice,
        DEFAULT_REDUCTION: lambda: None,
    }
    return tf.distribute.MirroredStrategy(list(devices), cross_device_ops=operations[reduction]())


def _one_core_strategy(tf: Any, device: str) -> Any:
    """Returns a OneDeviceStrategy whose steps run one operation at a time.

    All devices share TensorFlow's pool of threads, so one device would run two independent
    operations on two cores: 1.31 cores with a dense network, with this executor about 1.0.
    """
    # TensorFlow documents the executor for tests and servers, but exports no name for it.
    from tensorflow.python.eager import context

    autograph = tf.__internal__.autograph

    class OneDeviceStrategy(tf.distribute.OneDeviceStrategy):  # type: ignore[misc]
        def run(self, fn: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
            if not tf.executing_eagerly():
                # The executor belongs to a call of a function: give the step a call of its own,
                # which TensorFlow must not inline.
                status = autograph.control_status_ctx()
                step = autograph.tf_convert(fn, status, convert_by_default=False)
                apart = {"_noinline": True}
                fn = tf.function(step, autograph=False, experimental_attributes=apart)
            with context.function_executor_type("SINGLE_THREADED_EXECUTOR"):
                return super().run(fn, *args, **keywords)

    return OneDeviceStrategy(device)
