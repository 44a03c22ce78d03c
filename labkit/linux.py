"""Calls of the Linux kernel that Python lacks, for processes that must end or be kept apart."""

import ctypes
import os
import signal
import sys
from functools import cache
from pathlib import Path
from typing import Any

DEATH_OF_PARENT, DUMPABLE, ADOPT_ORPHANS = 1, 4, 36  # of prctl
NEW_USER, NEW_NETWORK, NEW_NAME = 0x10000000, 0x40000000, 0x04000000  # CLONE_NEW…


@cache
def _library() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: Any) -> None:
    """Call a function of the system's library. Raises OSError if it fails."""
    if getattr(_library(), name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


def enter_namespaces(kinds: int) -> None:
    """Move this process, which must have a single thread, into new namespaces.

    Root may do that. For other users it needs a user namespace, with the same user and group, so
    that files stay theirs.
    """
    user, group = os.getuid(), os.getgid()
    try:
        call("unshare", kinds)
    except OSError:
        call("unshare", NEW_USER | kinds)
        maps = {"uid_map": f"{user} {user} 1", "gid_map": f"{group} {group} 1"}
        for name, text in {"setgroups": "deny", **maps}.items():
            Path("/proc/self", name).write_text(text, encoding="ascii")


def end_with_parent(by: int = signal.SIGKILL) -> None:
    """Let the kernel send this process a signal when its parent ends. Other systems: nothing."""
    if sys.platform == "linux":
        call("prctl", DEATH_OF_PARENT, by)


def adopt_orphans() -> None:
    """Become the parent of orphans below this process. Other systems: nothing."""
    if sys.platform == "linux":
        call("prctl", ADOPT_ORPHANS, 1)


def children() -> list[int]:
    """Returns the children of this process, or [] on other systems."""
    file = Path(f"/proc/self/task/{os.getpid()}/children")
    return [*map(int, file.read_text(encoding="ascii").split())] if file.exists() else []
