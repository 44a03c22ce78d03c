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
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import repeat
from pathlib import Path
from typing import Any

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


def ended_within(seconds: float, wait: Callable[[float], bool], thread: int) -> bool:
    """Wait for its end; False when the thread had a core, or waited itself, for so long."""
    began, before = time.monotonic(), without_core(thread)
    left = seconds
    while left > 0:
        if wait(min(left, threading.TIMEOUT_MAX)):
            return True
        left = seconds - (time.monotonic() - began) + (without_core(thread) - before)
    return False


def slowdown() -> float:
    """How many processes share a core now, from 1 to 10: a limit for other processes grows so."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return min(max(1.0, os.getloadavg()[0] / cores), 10.0)


def time_limit(seconds: float) -> AbstractContextManager[Any]:
    """Raise TimeLimit in this thread when the block takes longer.

    It is raised again and again: Python drops it in a destructor, and a program may swallow it. A
    signal would do the same in the main thread only, and would take the place of another's.
    """
    thread, native = ctypes.c_ulong(threading.get_ident()), threading.get_native_id()
    started, entered, inside = locks = [_thread.allocate_lock() for _ in range(3)]
    for one in locks:
        one.acquire()
    # Nothing interrupts C: the block is left in one step, and no thread runs between a look at the
    # lock and the exception, so that none comes after the block.
    looks = map({True: thread}.get, iter(inside.locked, False))
    raises = map(raise_in, looks, repeat(ctypes.py_object(TimeLimit)))

    def interrupt() -> None:
        started.release()
        entered.acquire()
        if not ended_within(seconds, lambda left: inside.acquire(timeout=left), native):
            for _ in raises:
                if inside.acquire(timeout=AGAIN):
                    break

    _thread.start_new_thread(interrupt, ())
    started.acquire()  # until it runs, Python 3.11 takes it for the thread that has made it
    block = {"__enter__": entered.release, "__exit__": inside.__exit__}
    return type("Block", (), block)()  # type: ignore[no-any-return]
