"""A limit to how long a program may take, even one that makes no calls at all."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["OutOfTime", "limit"]


class OutOfTime(BaseException):
    """Raised in the middle of whatever the thread is doing. No `except Exception` stops it."""


@contextmanager
def limit(seconds: float) -> Iterator[None]:
    """Raise OutOfTime in this thread when the block takes longer.

    A signal would do the same in the main thread only, and would take the place of another's.
    """
    thread = ctypes.c_ulong(threading.get_ident())
    done, door = False, threading.Lock()

    def interrupt() -> None:
        with door:
            if not done:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(OutOfTime))

    timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        with door:
            done = True
            ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, None)
