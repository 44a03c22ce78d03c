"""What is different on each worker, though all run the same graph: its number, and its delay.

A step is traced once, by the chief, and any worker may run it. A variable that exists under one
name on every worker tells the step where it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from labkit.hardware.devices import import_tensorflow

__all__ = ["at_worker", "read_here", "slowed", "write_here"]

_HERE = "labkit_this_worker"


def _this_worker() -> Any:
    tf = import_tensorflow()
    return tf.raw_ops.VarHandleOp(dtype=tf.float64, shape=[2], shared_name=_HERE)


def read_here() -> Any:
    """In a step: the number of the worker that runs it, and its delay in seconds."""
    tf = import_tensorflow()
    return tf.raw_ops.ReadVariableOp(resource=_this_worker(), dtype=tf.float64)


def write_here(values: list[float]) -> None:
    """Tell the worker where this runs its number and its delay."""
    tf = import_tensorflow()
    value = tf.constant(values, tf.float64)
    tf.raw_ops.AssignVariableOp(resource=_this_worker(), value=value)


def at_worker(worker: int, action: Callable[[], Any]) -> Any:
    """Do it on a worker."""
    tf = import_tensorflow()
    with tf.device(f"/job:worker/replica:0/task:{worker}/device:CPU:0"):
        return action()


def slowed(source: Any, seconds: Any) -> Any:
    """Each element after so many seconds, in which the worker's core is free for others."""
    tf = import_tensorflow()
    # TensorFlow has the operation, and no public Python for it.
    from tensorflow.python.data.experimental.ops.testing import sleep

    return sleep(tf.cast(seconds * 1e6, tf.int64))(source)
