"""A function in a process of its own, without network, and ended when it takes too much.

It is a fork of this process, so that what is loaded here is loaded there. On Linux it has its own
network, processes and view of the disk, which it can read and cannot change.
"""

import ctypes
import json
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil

from labkit.cluster.network import enter_private_network
from labkit.time_limit import slowdown

MEMORY = 2 * 2**30  # bytes more than this process has
PROCESSES = 64
NEW_MOUNTS, NEW_PROCESSES = 0x00020000, 0x20000000
DEATH_OF_PARENT, ADOPT_ORPHANS = 1, 36  # of prctl
MOUNT_SETATTR, EVERYWHERE, RECURSIVE, READ_ONLY = 442, -100, 0x8000, 1
PRIVATE = 0x40000 | 0x4000  # MS_PRIVATE, MS_REC
Send = Callable[[Any], None]


@dataclass
class Sandbox:
    """A running function: read its messages from `pipe`."""

    pid: int
    pipe: Connection
    seconds: float
    """Between two messages; on a busy machine, more."""
    heard: float = field(default_factory=time.monotonic)

    def receive(self) -> Any:
        """The next message, which is plain; EOFError: there are no more."""
        self.heard = time.monotonic()
        return json.loads(self.pipe.recv_bytes(2**20))

    def exceeded(self) -> str:
        """Which limit it has exceeded; "" if none."""
        if len(inside := self._inside()) > PROCESSES:
            return f"started more than {PROCESSES} processes"
        ours, total = _own_memory(psutil.Process()), 0  # a fork shares ours until it changes it
        for one in inside:
            with suppress(psutil.Error):
                total += max(0, _own_memory(one) - ours)
        if total > MEMORY:
            return f"took more than {MEMORY / 2**30:g} GiB of memory"
        if time.monotonic() - self.heard > self.seconds * slowdown():
            return f"was not done after {self.seconds:g} s"
        return ""

    def end(self) -> None:
        """Kill all that runs in it: with the first process of a namespace ends every other."""
        while inside := self._inside():
            for one in inside:
                with suppress(psutil.Error):
                    one.kill()
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.pipe.close()

    def _inside(self) -> list[psutil.Process]:
        with suppress(psutil.Error):
            found = psutil.Process(self.pid).children(recursive=True)
            return [one for one in found if one.status() != psutil.STATUS_ZOMBIE]
        return []


def start(work: Callable[[Send], None], folder: Path, seconds: float) -> Sandbox:
    """Call `work(send)` in a fork, in this folder, which is empty there.

    Where there are no namespaces, the first message is ["refused", why].
    """
    ours, theirs = Pipe(duplex=False)
    sys.stdout.flush()
    if pid := os.fork():
        theirs.close()
        return Sandbox(pid, ours, seconds)

    def send(message: Any) -> None:
        theirs.send_bytes(json.dumps(message).encode())

    try:  # whatever happens, a fork must never go on as its parent would
        ours.close()
        os.setsid()
        if reason := _enter(folder):
            send(["refused", reason])
        if child := os.fork():
            theirs.close()
            os.waitpid(child, 0)
        else:
            _settle(folder, private=not reason)
            work(send)
    finally:
        os._exit(0)


def _enter(folder: Path) -> str:
    """Be in namespaces, the next fork included; why not, or ""."""
    if sys.platform != "linux":
        return "only Linux has namespaces"
    library = ctypes.CDLL(None, use_errno=True)
    library.prctl(DEATH_OF_PARENT, signal.SIGKILL)
    library.prctl(ADOPT_ORPHANS, 1)
    if refused := enter_private_network():
        return refused
    read_only = ctypes.byref((ctypes.c_uint64 * 4)(READ_ONLY))
    calls: tuple[Callable[[], int], ...] = (
        lambda: library.unshare(NEW_MOUNTS | NEW_PROCESSES),
        lambda: library.mount(None, b"/", None, PRIVATE, None),
        lambda: library.syscall(MOUNT_SETATTR, EVERYWHERE, b"/", RECURSIVE, read_only, 32),
        lambda: library.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, b"size=1g"),
        lambda: library.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"size=1g"),
    )
    if any(call() != 0 for call in calls):
        return f"the kernel refused namespaces ({os.strerror(ctypes.get_errno())})"
    return ""


def _settle(folder: Path, *, private: bool) -> None:
    if sys.platform == "linux":
        library = ctypes.CDLL(None)
        library.prctl(DEATH_OF_PARENT, signal.SIGKILL)
        if private:  # /proc must tell of the new processes: their numbers begin with 1
            library.mount(b"proc", b"/proc", b"proc", 0, None)
        status = Path("/proc/self/status").read_text(encoding="ascii")
        most = int(status.partition("VmData:")[2].split()[0]) * 1024 + MEMORY
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nowhere, number)
    os.chdir(folder)
    tempfile.tempdir = os.environ["TMPDIR"] = str(folder)


def _own_memory(process: psutil.Process) -> int:
    memory = process.memory_info()
    return int(memory.rss - getattr(memory, "shared", 0))  # without that of files
