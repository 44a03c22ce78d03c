"""The sampler's own process: looks at the devices while the notebook's kernel is busy.

    python -P -m labkit.telemetry.process --every 0.1 --pid 4242 --sources gpus,host

Lines go to standard output, or with --to to a file. It ends when standard input does, which is
also how it notices that the kernel has died: whatever kills a kernel, no sampler is left behind.
On standard input, "mark" means: look at once, "tell": do, and hand over all that was seen,
"live": somebody watches, so hand looks over while they are new, "each": hand over each by itself,
and "end": end.

A process, because a kernel that computes holds the interpreter's lock: a thread of it would sample
late, and not at all while a library holds the lock for seconds.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import stat
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from labkit.telemetry.lines import state_line
from labkit.telemetry.metrics import Source, State
from labkit.telemetry.sampling import Sampling

__all__ = ["Outlet", "main", "source_named"]

BACKLOG = 64 << 20  # bytes that wait for a kernel that does not read: an hour of eight GPUs
PIPE = 1 << 20
LAST_WORDS = 1.0  # seconds to hand over what is left at the end
ROUND = 1.0  # seconds between two looks at whether the parent lives
# Seconds for which a look waits for others. While somebody watches, ten a second come by fives, for
# a third of the cost; the page shows them one after the other, as they were taken.
UNWATCHED, WATCHED = 1.95, 0.45
F_SETPIPE_SZ = 1031  # fcntl has the name on Linux only


def main(arguments: Sequence[str] | None = None) -> int:
    """Sample until standard input ends. The exit status is 3 when the file could not be written."""
    asked = _asked(arguments)
    parent = os.getppid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is meant for the cell, not for us
    wake = _wake_on_end()
    outlet = Outlet(_file(asked.to) if asked.to else _pipe(), whole=bool(asked.to))
    sampling = Sampling(
        [source_named(name, asked.pid) for name in asked.sources.split(",") if name],
        asked.every,
        outlet.write,
        began=asked.clock,
        where=asked.where,
        header=not asked.continued,
        cpu=time.process_time,
        # A recording must be on the disk when the machine dies.
        together=0.0 if asked.to else UNWATCHED,
    )
    sampling.start()
    try:
        _serve(sampling, outlet, wake, lambda: os.getppid() == parent)
    finally:
        sampling.stop()
        outlet.drain(LAST_WORDS)
    if outlet.fault and asked.to:
        print(f"{asked.to} cannot be written any more: {outlet.fault}.", file=sys.stderr)
        return 3
    return 0


def source_named(name: str, pid: int | None) -> Source:
    """The source of that name, which is about the process `pid` where it is about one."""
    if name == "gpus":
        from labkit.telemetry.gpus import Gpus

        gpus: Source = Gpus(pid)
        return gpus
    if name == "host":
        from labkit.telemetry.machine import Host

        return Host(pid)
    raise ValueError(f"there is no source named {name!r}, only 'gpus' and 'host'")


class Outlet:
    """Where lines go. A pipe that is full makes nobody wait: what does not fit is kept."""

    def __init__(self, descriptor: int, whole: bool, room: int = BACKLOG) -> None:
        self.fault: OSError | None = None  # nothing can be written any more
        self._descriptor, self._whole, self._room = descriptor, whole, room
        self._waiting: deque[bytes] = deque()  # whole lines, but for the first, which may be begun
        self._bytes = 0
        self.lost = 0  # how many looks there was no room for
        self._lock = threading.Lock()

    def write(self, lines: list[str]) -> None:
        """Take lines, and write as many as can be written now."""
        texts = [f"{line}\n".encode() for line in lines]
        if not self._whole:
            texts = [b"".join(texts)]
        with self._lock:
            self._waiting.extend(texts)
            self._bytes += sum(map(len, texts))
            while self._bytes > self._room and len(self._waiting) > 2:
                # The oldest go, but not the first: a part of it may be written already.
                self.lost += 1
                self._bytes -= len(self._waiting[1])
                del self._waiting[1]
            self._flush()

    def flush(self) -> None:
        """Write what can be written now."""
        with self._lock:
            self._flush()

    @property
    def waiting(self) -> int:
        """Bytes that have not been written yet."""
        return self._bytes

    def drain(self, deadline: float) -> None:
        """Write everything, unless nobody takes it until the deadline."""
        until = time.monotonic() + deadline
        while True:
            self.flush()
            left = until - time.monotonic()
            if not self._waiting or self.fault or left <= 0:
                return
            select.select([], [self._descriptor], [], left)

    def _flush(self) -> None:
        while self._waiting and not self.fault:
            first = self._waiting[0]
            try:
                written = os.write(self._descriptor, first)
            except BlockingIOError:
                return
            except OSError as fault:
                self.fault = fault
                return
            self._bytes -= written
            if written < len(first):
                self._waiting[0] = first[written:]
            else:
                self._waiting.popleft()


def _serve(sampling: Sampling, outlet: Outlet, wake: int, parent_lives: Callable[[], bool]) -> None:
    checked = time.monotonic()
    while not outlet.fault:
        readable, _, _ = select.select([0, wake], [], [], ROUND)
        if wake in readable:
            return
        if 0 in readable:
            said = os.read(0, 4096)
            if not said or b"end" in said:
                return
            if b"live" in said:
                sampling.together = min(sampling.together, WATCHED)
            if b"each" in said:
                sampling.together = 0.0
            if b"mark" in said or b"tell" in said:
                sampling.look_now(hand_over=b"tell" in said)
        now = time.monotonic()
        if now - checked >= ROUND:
            checked = now
            if not parent_lives():
                return
            sampling.check()
            _tell_losses(sampling, outlet, now)


def _tell_losses(sampling: Sampling, outlet: Outlet, now: float) -> None:
    outlet.flush()
    if outlet.lost and not outlet.waiting:
        says = (
            f"{outlet.lost} looks were lost, because the notebook's kernel took none for so long "
            "that there was no more room to keep them."
        )
        outlet.lost = 0
        sampling.tell([state_line(State(now, "", "", "note", says), sampling.began)])


def _asked(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m labkit.telemetry.process")
    parser.add_argument("--every", type=float, default=0.1, help="seconds between two looks")
    parser.add_argument("--pid", type=int, help="the process whose memory is shown")
    parser.add_argument("--sources", default="gpus,host")
    parser.add_argument("--to", help="a file, in place of standard output; lines are appended")
    parser.add_argument("--where", default="", help="what the recording is of")
    parser.add_argument("--clock", type=float, help="time.monotonic() when time was 0")
    parser.add_argument("--continued", action="store_true", help="the header is already written")
    return parser.parse_args(arguments)


def _wake_on_end() -> int:
    """A descriptor that becomes readable when the process is asked to end."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    # The handler has nothing to do: that there is one makes Python write to the descriptor.
    signal.signal(signal.SIGTERM, lambda *_: None)
    return read


def _pipe() -> int:
    if stat.S_ISFIFO(os.fstat(1).st_mode):  # a terminal is shared with the shell
        os.set_blocking(1, False)
    with suppress(ImportError, OSError):  # a larger pipe is a kindness, not a need
        import fcntl

        fcntl.fcntl(1, F_SETPIPE_SZ, PIPE)
    return 1


def _file(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)


if __name__ == "__main__":
    status = 1
    try:
        status = main()
    except Exception as fault:  # noqa: BLE001 - the kernel reads this sentence and shows it
        print(f"{type(fault).__name__}: {fault}", file=sys.stderr)
    finally:
        # A thread that hangs in a driver must not keep the process.
        with suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(status)
