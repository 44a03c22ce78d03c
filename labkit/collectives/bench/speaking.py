"""How a measuring process reports: lines on its standard output that nothing else writes.

A line begins with a mark, for libraries print there too; behind it is one JSON value.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

__all__ = ["MARK", "heard", "say", "telling"]

MARK = "@labkit-bench "
_APART = 0.2  # seconds between two lines about progress


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
