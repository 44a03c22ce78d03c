"""A limit to how long a program may take, even one that makes no calls at all."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["OutOfTime", "limit"]

AGAIN = 1.0  # seconds


class OutOfTime(BaseException):
    """Raised in the middle of whatever the thread is doing. No `except Exception` stops it."""


raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc


@contextmanager
def limit(seconds: float) -> Iterator[None]:
    """Raise OutOfTime in this thread when the block takes longer.

    It is raised again every second, for a program that swallows everything. A signal would do
    the same in the main thread only, and would take the place of another's.
    """
    thread = ctypes.c_ulong(threading.get_ident())
    done, door = threading.Event(), threading.Lock()

    def interrupt() -> None:
        patience = min(seconds, threading.TIMEOUT_MAX)
        while not done.wait(patience):
            patience = AGAIN
            with door:
                if not done.is_set():
                    raise_in(thread, ctypes.py_object(OutOfTime))

    threading.Thread(target=interrupt, daemon=True).start()
    try:
        yield
    finally:
        done.set()
        with door:
            raise_in(thread, None)
