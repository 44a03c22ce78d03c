"""One timed call: wall clock, the garbage collector out of the way, the devices waited for.

A GPU runs asynchronously: a call returns as soon as its work is queued. A clock that stops then
has timed the queueing; this one stops when the devices are done.
"""

import gc
import sys
import time
from collections.abc import Callable
from typing import Any


def now() -> float:
    """Seconds on the wall clock."""
    return time.perf_counter()


def seconds_of(work: Callable[[], object]) -> float:
    """Call `work` once. Returns its seconds, until its devices have finished."""
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
    """Return when the GPUs have finished what TensorFlow and PyTorch have queued, if loaded.

    On a machine without accelerators it costs about a microsecond.
    """
    # PyTorch initialises CUDA with the first tensor that is put there, and not before.
    cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)
    if hasattr(cuda, "is_initialized") and cuda.is_initialized():
        for index in range(cuda.device_count()):
            if cuda.memory_reserved(index):  # to wait for a GPU of another rank would open it
                cuda.synchronize(index)
    eager: Any = sys.modules.get("tensorflow.python.eager.context")
    # While another thread still imports TensorFlow, its modules have no parts.
    runtime: Any = eager.context() if hasattr(eager, "context") else None
    # To ask a runtime that was never started would start it, and devices could not be split then.
    if getattr(runtime, "_initialized", False) and runtime.num_gpus():
        sys.modules["tensorflow"].test.experimental.sync_devices()
