"""A limit to how long a program may take, even one that calls nothing.

>>> with time_limit(10.0):
...     sum(range(1000))
499500

A busy machine is slow, and no fault of the program: seconds without a core do not count.
"""

import _thread
import ctypes
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

AGAIN = 0.3  # seconds


class TimeLimit(BaseException):
    """Raised in the middle of whatever the thread is doing. No `except Exception` stops it."""


raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc


def without_core(thread: int) -> float:
    """Seconds in which a thread of this process was ready to run and had no core (0 on macOS)."""
    try:
        return int(Path(f"/proc/self/task/{thread}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def ended_within(seconds: float, done: threading.Event, thread: int) -> bool:
    """Wait for the event; False when the thread had a core, or waited itself, for so long."""
    began, before = time.monotonic(), without_core(thread)
    left = seconds
    while left > 0:
        if done.wait(min(left, threading.TIMEOUT_MAX)):
            return True
        left = seconds - (time.monotonic() - began) + (without_core(thread) - before)
    return False


def slowdown() -> float:
    """How many processes share a core now, from 1 to 10: a limit for other processes grows so."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return min(max(1.0, os.getloadavg()[0] / cores), 10.0)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeLimit in this thread when the block takes longer.

    It is raised again and again: Python drops it in a destructor, and a program may swallow it. A
    signal would do the same in the main thread only, and would take the place of another's.
    """
    thread, native = ctypes.c_ulong(threading.get_ident()), threading.get_native_id()
    done, lock = threading.Event(), threading.Lock()

    def interrupt() -> None:
        late = not ended_within(seconds, done, native)
        while late and not done.is_set():
            with lock:
                if not done.is_set():
                    raise_in(thread, ctypes.py_object(TimeLimit))
            done.wait(AGAIN)

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
