"""One timed call: wall clock, the garbage collector out of the way, the devices waited for.

A GPU runs asynchronously: a call returns as soon as its work is queued. A clock that stops then
has timed the queueing; this one stops when the devices are done.
"""

from __future__ import annotations

import functools
import gc
import sys
import time
from collections.abc import Callable
from typing import Any

__all__ = ["now", "seconds_of", "wait_for_devices"]


def now() -> float:
    """Seconds on the wall clock."""
    return time.perf_counter()


def seconds_of(work: Callable[[], object]) -> float:
    """Call `work` once and say how long it took, its devices included."""
    # The garbage of the last call must not be collected in the time of this one. The young
    # generations are enough: a full collection takes 0.1 s once TensorFlow is loaded.
    gc.collect(1)
    collecting = gc.isenabled()
    gc.disable()
    try:
        wait_for_devices()
        start = now()
        work()
        wait_for_devices()
        seconds = now() - start
    finally:
        if collecting:
            gc.enable()
    return seconds


def wait_for_devices() -> None:
    """Return when the GPUs have finished the work in their queues.

    It imports nothing: a framework that the program has not loaded has no work in flight. On a
    machine without accelerators it costs about a microsecond.
    """
    tensorflow = sys.modules.get("tensorflow")
    # While another thread still imports TensorFlow, its module has no parts.
    if tensorflow is not None and hasattr(tensorflow, "config") and _has_gpu(tensorflow):
        context = sys.modules.get("tensorflow.python.eager.context")
        # To wait for a runtime that was never started would start it.
        if context is None or getattr(context.context(), "_initialized", True):
            tensorflow.test.experimental.sync_devices()
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is not None and cuda.is_initialized():
        for index in range(cuda.device_count()):
            # A context on a GPU that the program does not use would take memory there.
            if cuda.memory_allocated(index) or index == cuda.current_device():
                cuda.synchronize(index)


@functools.cache
def _has_gpu(tensorflow: Any) -> bool:
    # Physical devices: to list the logical ones would start the runtime, and the student
    # could no longer split a device.
    return bool(tensorflow.config.list_physical_devices("GPU"))
