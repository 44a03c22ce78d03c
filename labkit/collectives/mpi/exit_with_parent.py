"""A process that works for another ends when that one does."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

__all__ = ["exit_with_parent"]

INTERVAL = 1.0  # seconds


def exit_with_parent(parent: int, clean_up: Callable[[], None] = lambda: None) -> None:
    """End this process soon after the one that it works for, and clean up first.

    A kernel that is killed stops no process, and mpiexec does not notice: each rank checks itself.
    """

    def watch() -> None:
        while _is_running(parent):
            time.sleep(INTERVAL)
        try:
            clean_up()
        finally:
            os._exit(1)

    if os.name == "posix":  # elsewhere, asking whether a process runs may end it
        threading.Thread(target=watch, daemon=True).start()


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
