"""Processes that carry a mark in their environment: what a run has left behind."""

import contextlib
import time
import uuid
from pathlib import Path

MARK = "LABKIT_TEST_MARK"


def new_mark():
    return f"labkit-test-{uuid.uuid4().hex}"


def marked(mark):
    """The pids of all processes that were started with the mark."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (folder / "environ").read_bytes():
                found.add(int(folder.name))
    return found


def gone(mark, *but, timeout=300):
    """Whether nothing carries the mark, but for these; it may take a moment."""
    until = time.monotonic() + timeout
    while marked(mark) - set(but):
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True
