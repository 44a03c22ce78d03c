"""One timed call: wall clock, the garbage collector out of the way, the devices waited for.

A GPU takes orders and answers later. A clock that is stopped when the call returns has timed
the ordering; this one is stopped when the devices are done.
"""

from __future__ import annotations

import functools
import gc
import inspect
import sys
import time
from collections.abc import Callable
from typing import Any

from labkit.kinds import LabError

__all__ = ["Clock", "seconds_of", "wait_for_devices"]

Clock = Callable[[], int]


def seconds_of(name: str, work: Callable[[], object], clock: Clock = time.perf_counter_ns) -> float:
    """Call `work` once and say how long it took, its devices included."""
    # What the last call left behind must not be cleaned up on this one's time. Young garbage is
    # enough: a full collection costs a tenth of a second once TensorFlow is loaded.
    gc.collect(1)
    collecting = gc.isenabled()
    gc.disable()
    try:
        wait_for_devices(None)
        start = clock()
        result = work()
        wait_for_devices(result)
        stop = clock()
    finally:
        if collecting:
            gc.enable()
    _refuse_unstarted(name, result)
    return (stop - start) / 1e9


def wait_for_devices(result: object) -> None:
    """Return when the accelerators have finished what they were told.

    Nothing is imported for it: a framework that the program has not loaded has nothing to wait
    for. On a machine without accelerators it costs about a microsecond.
    """
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is not None and _answers_later(tensorflow):
        tensorflow.test.experimental.sync_devices()
    torch = sys.modules.get("torch")
    if torch is not None:
        _wait_for_torch(torch)
    _wait_for_values(result)


@functools.cache
def _has_gpu(tensorflow: Any) -> bool:
    # Physical devices: to list the logical ones would start the runtime, and the student
    # could no longer split a device.
    return bool(tensorflow.config.list_physical_devices("GPU"))


def _answers_later(tensorflow: Any) -> bool:
    # While TensorFlow is still being imported by another thread its module has no parts.
    if not hasattr(tensorflow, "config"):
        return False
    if not _has_gpu(tensorflow):
        return False
    context = sys.modules.get("tensorflow.python.eager.context")
    # A runtime that was never started runs nothing, and waiting for it would start it.
    return context is None or bool(getattr(context.context(), "_initialized", True))


def _wait_for_torch(torch: Any) -> None:
    cuda = getattr(torch, "cuda", None)
    if cuda is not None and cuda.is_initialized():
        for index in range(cuda.device_count()):
            # To touch a GPU that the program does not use would cost it memory there.
            if cuda.memory_allocated(index) or index == cuda.current_device():
                cuda.synchronize(index)
    metal = getattr(torch, "mps", None)
    if metal is not None and sys.platform == "darwin" and torch.backends.mps.is_available():
        metal.synchronize()


def _wait_for_values(result: object) -> None:
    if isinstance(result, (list, tuple)):
        for item in result:
            _wait_for_values(item)
    elif isinstance(result, dict):
        for item in result.values():
            _wait_for_values(item)
    else:
        ready = getattr(result, "block_until_ready", None)
        if callable(ready):
            ready()


def _refuse_unstarted(name: str, result: object) -> None:
    if inspect.iscoroutine(result):
        result.close()
        found = "a coroutine"
    elif inspect.isgenerator(result) or inspect.isasyncgen(result):
        found = "a generator"
    else:
        return
    raise LabError(
        f"{name!r} gave back {found}: calling it starts nothing, so there is nothing to time. "
        "Give a function that does the work and returns when it is done."
    )
