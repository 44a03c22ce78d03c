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
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil

from labkit.cluster.network import enter_private_network

NEW_MOUNTS, NEW_PROCESSES = 0x00020000, 0x20000000
DEATH_OF_PARENT, ADOPT_ORPHANS = 1, 36  # of prctl
MOUNT_SETATTR, EVERYWHERE, RECURSIVE, READ_ONLY = 442, -100, 0x8000, 1
PRIVATE = 0x40000 | 0x4000  # MS_PRIVATE, MS_REC
Send = Callable[[Any], None]


@dataclass(frozen=True)
class Limits:
    """Seconds between two messages, bytes more than this process has, and processes."""

    seconds: float = 60.0
    memory: int = 2 * 2**30
    processes: int = 64


@dataclass
class Sandbox:
    """A running function: read its messages from `pipe`."""

    pid: int
    pipe: Connection
    limits: Limits
    heard: float = field(default_factory=time.monotonic)

    def receive(self) -> Any:
        """The next message, which is plain; EOFError: there are no more."""
        self.heard = time.monotonic()
        return json.loads(self.pipe.recv_bytes(2**20))

    def exceeded(self) -> str:
        """Which limit it has exceeded; "" if none."""
        if time.monotonic() - self.heard > self.limits.seconds:
            return f"was not done after {self.limits.seconds:g} s"
        if len(found := self._inside()) > self.limits.processes:
            return f"started more than {self.limits.processes} processes"
        before, total = _own_memory(psutil.Process()), 0
        for one in found:
            with suppress(psutil.Error):
                total += max(0, _own_memory(one) - before)
        most = self.limits.memory
        return f"took more than {most / 2**30:g} GiB of memory" if total > most else ""

    def end(self) -> None:
        """Kill all that runs in it: with the first process of a namespace ends every other."""
        for _ in range(100):
            for one in (inside := self._inside()):
                with suppress(psutil.Error):
                    one.kill()
            if not inside:
                break
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.pipe.close()

    def _inside(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self.pid).children(recursive=True)
        except psutil.Error:
            return []


def start(work: Callable[[Send], None], folder: Path, limits: Limits) -> Sandbox:
    """Call `work(send)` in a fork, in this folder, which is empty there."""
    ours, theirs = Pipe(duplex=False)
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        theirs.close()
        return Sandbox(pid, ours, limits)
    code = 1
    try:  # whatever happens, a fork must never go on as its parent would
        ours.close()
        os.setsid()
        reason = _enter(folder)
        child = os.fork()
        if child == 0:
            _run(work, theirs, folder, limits, private=not reason)
            code = 0
        else:
            theirs.close()
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        os._exit(code & 255)


def _enter(folder: Path) -> str:
    """Be in namespaces, the next fork included; why not, or ""."""
    library = ctypes.CDLL(None, use_errno=True)
    if sys.platform != "linux":
        return "only Linux has namespaces"
    library.prctl(DEATH_OF_PARENT, signal.SIGKILL)
    library.prctl(ADOPT_ORPHANS, 1)
    if refused := enter_private_network():
        return refused
    calls: tuple[Callable[[], int], ...] = (
        lambda: library.unshare(NEW_MOUNTS | NEW_PROCESSES),
        lambda: library.mount(None, b"/", None, PRIVATE, None),
        lambda: library.syscall(
            MOUNT_SETATTR, EVERYWHERE, b"/", RECURSIVE,
            ctypes.byref((ctypes.c_uint64 * 4)(READ_ONLY)), 32,
        ),
        lambda: library.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, b"size=1g"),
        lambda: library.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"size=1g"),
    )  # fmt: skip
    if any(call() != 0 for call in calls):
        return f"the kernel refused namespaces ({os.strerror(ctypes.get_errno())})"
    return ""


def _run(
    work: Callable[[Send], None], pipe: Connection, folder: Path, limits: Limits, *, private: bool
) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DEATH_OF_PARENT, signal.SIGKILL)
    if private:  # /proc must tell of the new processes: their numbers begin with 1
        ctypes.CDLL(None).mount(b"proc", b"/proc", b"proc", 0, None)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nowhere, number)
    os.chdir(folder)
    os.environ["TMPDIR"] = str(folder)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, 2**30)
    if sys.platform == "linux":
        status = Path("/proc/self/status").read_text(encoding="ascii")
        data = int(status.partition("VmData:")[2].split()[0]) * 1024
        _limit(resource.RLIMIT_DATA, data + limits.memory)
    work(lambda message: pipe.send_bytes(json.dumps(message).encode()))


def _limit(what: int, most: int) -> None:
    hard = resource.getrlimit(what)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(what, (most, most))


def _own_memory(process: psutil.Process) -> int:
    """Bytes that are no file's; a fork shares those of its parent until it changes them."""
    memory = process.memory_info()
    return int(memory.rss - getattr(memory, "shared", 0))


@cache
def refused() -> str:
    """Why a sandbox has no namespaces here, tried in a fork; "" if it has them."""
    source, target = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(target, _enter(Path("/mnt")).encode())
        finally:
            os._exit(0)
    os.close(target)
    os.waitpid(pid, 0)
    with os.fdopen(source, encoding="utf-8") as answer:
        return answer.read()
