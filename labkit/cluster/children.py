"""What the system tells of a process's children."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

__all__ = ["children", "state_of"]


def state_of(pid: int) -> str:
    """The letter that `ps` shows: R, S, T for stopped, Z; a question mark where nobody knows."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "?"
    return text.rpartition(")")[2].split()[0]


def children() -> list[int]:
    """Our children, also those that a dead rank has left to us."""
    mine = os.getpid()
    with suppress(OSError):
        listed = Path(f"/proc/{mine}/task/{mine}/children").read_text(encoding="ascii")
        return [int(pid) for pid in listed.split()]
    found = []
    with suppress(OSError):
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                with suppress(OSError, IndexError, ValueError):
                    stat = (folder / "stat").read_text(encoding="utf-8", errors="replace")
                    if int(stat.rpartition(")")[2].split()[1]) == mine:
                        found.append(int(folder.name))
    return found
