"""Processes that carry a mark in their environment: what a run has left behind."""

import contextlib
import time
import uuid
from pathlib import Path


def new_mark():
    return f"labkit-test-{uuid.uuid4().hex}"


def marked(mark):
    """Pid and command of each process that was started with the mark, zombies included."""
    found = {}
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and mark.encode() in (folder / "environ").read_bytes():
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
    return found


def gone(mark, deadline=20.0):
    """Wait until nothing carries the mark; what still does when the time is over."""
    until = time.monotonic() + deadline
    while (left := marked(mark)) and time.monotonic() < until:
        time.sleep(0.02)
    return left


def children_of(pid):
    """Living and dead children of a process."""
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError, IndexError):
            if folder.name.isdigit():
                words = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if int(words[1]) == pid:
                    found.append((int(folder.name), words[0]))
    return found
