"""How a measuring process reports: lines on its standard output that nothing else writes.

A line begins with a mark, for libraries print there too; behind it is one JSON value. A process
that has nobody left to report to ends.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from typing import Any

__all__ = ["MARK", "end_with", "heard", "say", "telling"]

MARK = "@labkit-bench "
_APART = 0.2  # seconds between two lines about progress
_LOOK = 1.0  # seconds between two looks at whoever asked


def say(what: str, value: Any) -> None:
    """One line to whoever has started this process."""
    print(MARK + json.dumps({what: value}), flush=True)


def telling(silent: bool) -> Callable[[str, float], None]:
    """A function that reports progress, not too often; one rank alone speaks."""
    last = [0.0]

    def tell(text: str, share: float) -> None:
        now = time.monotonic()
        if not silent and now - last[0] > _APART:
            last[0] = now
            say("progress", share)

    return tell


def heard(line: str) -> dict[str, Any] | None:
    """What a line says, if it is one of ours."""
    at = line.find(MARK)
    if at < 0:
        return None
    try:
        value = json.loads(line[at + len(MARK) :])
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def end_with(asker: int) -> None:
    """End this process soon after the one that asked for the measurement.

    A kernel that is killed stops nobody, and mpiexec does not notice: each rank looks for itself.
    """

    def look() -> None:
        while _lives(asker):
            time.sleep(_LOOK)
        os._exit(1)

    if os.name == "posix":  # elsewhere, asking whether a process lives may end it
        threading.Thread(target=look, daemon=True).start()


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
