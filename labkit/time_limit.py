"""A limit to how long a program may take, even one that calls nothing.

>>> with time_limit(10.0):
...     sum(range(1000))
499500
"""

from __future__ import annotations

import _thread
import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

__all__ = ["TimeLimit", "time_limit"]

AGAIN = 0.3  # seconds


class TimeLimit(BaseException):
    """Raised in the middle of whatever the thread is doing. No `except Exception` stops it."""


raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeLimit in this thread when the block takes longer.

    It is raised again and again: Python drops it in a destructor, and a program may swallow it. A
    signal would do the same in the main thread only, and would take the place of another's.
    """
    thread = ctypes.c_ulong(threading.get_ident())
    done, lock = threading.Event(), threading.Lock()

    def interrupt() -> None:
        wait = min(seconds, threading.TIMEOUT_MAX)
        while not done.wait(wait):
            wait = AGAIN
            with lock:
                if not done.is_set():
                    raise_in(thread, ctypes.py_object(TimeLimit))

    _thread.start_new_thread(interrupt, ())  # threading's own start waits until it runs
    try:
        yield
    finally:
        done.set()
        # One that is on its way arrives here. (Taking it back would leave a flag of Python 3.11
        # set, with which every program under sys.settrace, such as Hypothesis, stands still.)
        with suppress(TimeLimit), lock:
            for _ in range(3):
                pass
