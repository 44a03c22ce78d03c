"""The sampler: one process that samples the GPUs and the host while the notebook's kernel is busy.

    python -P -m labkit.telemetry.sampler --every 0.1 --pid 4242 --clock C --where W [--continued]

It writes the lines of `format`: header (not where a recording is continued), sources, then rows in
batches. One batch is one write of whole lines. Requests come on standard input, one a line:

    sample      sample now (the edge of a span); written with the next batch
    flush N     sample now, write everything, then the line {"flushed": N}; a source that does not
                answer within 0.2 s is left out
    batch N     from now on, write N samples together: 5 while a page shows them, 1 for a file; at
                first 20; never more than 2 s together
    process P   from now on, the memory of process P
    end         write everything and exit; the end of standard input, SIGTERM and the end of the
                parent do the same

It is a process, because a kernel that computes holds Python's global lock: a thread of it would
sample late, or not at all.
"""

from __future__ import annotations

import argparse
import math
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime

from labkit.telemetry.format import (
    Header,
    cost_line,
    end_line,
    header_line,
    row_line,
    source_line,
    state_line,
)
from labkit.telemetry.gpus import Gpus
from labkit.telemetry.host import Host
from labkit.telemetry.metrics import Device, State, Why

__all__ = ["Loop", "Output", "Sampled", "main"]

BATCH = 20
LONGEST_BATCH = 2.0  # seconds
ROUND = 1.0  # seconds between two checks of the parent and of calls that hang
COST = 5.0  # seconds between two lines about the sampler's own cost
FLUSH = 0.2  # seconds that a flush waits for a source
HANGS = 2.0  # seconds after which a call that does not return is told, and nothing waits for it
CLOSE = 0.005  # seconds; requests that come nearer than this share a sample
RETRY = 5.0  # seconds until a source that failed is opened again
PIPE, F_SETPIPE_SZ = 1 << 20, 1031  # fcntl has the name on Linux only


def main() -> None:
    """Sample until the end of standard input."""
    parser = argparse.ArgumentParser(prog="python -m labkit.telemetry.sampler")
    parser.add_argument("--every", type=float, default=0.1, help="seconds between two samples")
    parser.add_argument("--pid", type=int, default=os.getppid(), help="whose memory is shown")
    parser.add_argument("--where", default="", help="what the recording is of")
    parser.add_argument("--clock", type=float, help="time.monotonic() when time was 0")
    parser.add_argument("--continued", action="store_true", help="the header is already written")
    given = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is meant for the cell
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    with suppress(ImportError, OSError):  # Linux only: room for minutes of samples
        import fcntl

        fcntl.fcntl(1, F_SETPIPE_SZ, PIPE)
    began = time.monotonic() if given.clock is None else given.clock
    output = Output(1, began)
    when = datetime.now().astimezone().isoformat(timespec="seconds")
    header = header_line(Header(given.where, when, given.every, began))
    sources = [Sampled(0, Gpus(given.pid), output), Sampled(1, Host(given.pid), output)]
    output.write([*([] if given.continued else [header]), *(one.named() for one in sources)])
    loops = [Loop(sources, given.every, output)]
    with suppress(SystemExit):  # SIGTERM
        loops[0].start()
        _serve(loops, output)
    for loop in loops:
        loop.end()
    until = time.monotonic() + FLUSH
    for loop in loops:
        loop.join(max(0.0, until - time.monotonic()))
    now = time.monotonic() - began
    output.write([cost_line(now, time.process_time()), end_line(now)])


class Output:
    """Where the lines go, from any thread. `began` is the recording's time 0."""

    def __init__(self, descriptor: int, began: float) -> None:
        self.began = began
        self.broken = False  # the reader is gone
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def write(self, lines: Sequence[str]) -> None:
        """Write these lines at once."""
        left = "".join([f"{line}\n" for line in lines]).encode()
        with self._lock:
            try:
                while left and not self.broken:
                    left = left[os.write(self._descriptor, left) :]
            except OSError:
                self.broken = True


class Sampled:
    """One source and its lines. It is opened again when it fails; no call here raises."""

    def __init__(self, number: int, source: Gpus | Host, output: Output) -> None:
        self._number, self._source, self._output = number, source, output
        self._devices: tuple[Device, ...] = ()
        self._lines: list[str] = []
        self._open = self._failed = self._hangs = False
        self._retry = -math.inf
        self._since: float | None = None  # when the call began that is under way

    def sample(self, edge: bool) -> None:
        """Sample now; open it before, if that is due."""
        now = time.monotonic()
        if not self._open and now < self._retry:
            return
        self._since = now
        try:
            if not self._open:
                self._devices, states = self._source.open()
                self._open = True
                self._lines.append(self.named())
                self._tell_all(states)
            if self._devices:
                self._source.sample(edge)
            if self._failed:
                self._failed = False
                self._tell("fine", f"{self._source.name} can be read again.")
        except Exception as fault:  # noqa: BLE001 - a driver may fail in any way
            self._fail(fault)
        self._since = None

    def take(self) -> list[str]:
        """The lines of all samples since the last time."""
        if self._devices and self._open:
            self._since = time.monotonic()
            try:
                rows, states = self._source.take()
                self._tell_all(states)
                self._lines += [row_line(self._number, row, self._output.began) for row in rows]
            except Exception as fault:  # noqa: BLE001
                self._fail(fault)
            self._since = None
        if self._hangs:
            self._hangs = False
            self._tell("fine", f"{self._source.name} answers again.")
        lines, self._lines = self._lines, []
        return lines

    def close(self) -> None:
        """Let the source go."""
        with suppress(Exception):
            self._source.close()
        self._open = False

    def follow(self, pid: int) -> None:
        """From now on the process memory is of this process."""
        self._source.follow(pid)

    def named(self) -> str:
        """The line that names the source and its devices, which are known once it is open."""
        return source_line(self._source.name, self._source.metrics, self._devices)

    def hangs(self, now: float) -> bool:
        """Whether a call does not return; called by another thread, which says so once."""
        since = self._since
        if since is None or now - since < HANGS:
            return False
        if not self._hangs:
            self._hangs = True
            says = (
                f"{self._source.name} has not answered for {HANGS:g} s. "
                "Everything else goes on; nothing is known about it until it answers."
            )
            state = State(now, self._source.name, "", "silent", says)
            self._output.write([state_line(state, self._output.began)])
        return True

    def _fail(self, fault: Exception) -> None:
        """Say why, once, and try again after a pause."""
        if not self._failed:
            self._failed = True
            reason = f"{type(fault).__name__}: {fault}"
            name = self._source.name
            self._tell("silent", f"{name} cannot be read ({reason}). It is tried again.")
        self.close()
        self._retry = time.monotonic() + RETRY

    def _tell(self, why: Why, says: str) -> None:
        self._tell_all([State(time.monotonic(), self._source.name, "", why, says)])

    def _tell_all(self, states: Sequence[State]) -> None:
        self._lines += [state_line(state, self._output.began) for state in states]


class Loop(threading.Thread):
    """Samples its sources on a schedule that does not drift.

    One thread for all sources, because to be woken costs a quarter of all: a second thread made
    the sampler 25 % dearer. A source whose call hangs is left with this thread, see `others`.
    """

    def __init__(
        self, sources: Sequence[Sampled], every: float, output: Output, batch: int = BATCH
    ) -> None:
        super().__init__(name="sampling", daemon=True)
        self.sources, self.batch = list(sources), batch
        self._every, self._output = every, output
        self._awake = threading.Lock()  # released to wake the thread; an Event costs three times it
        self._awake.acquire()
        self._edge = self._ending = False
        self._flushes: list[threading.Event] = []

    def request(self, flush: threading.Event | None = None) -> None:
        """Sample now, from any thread; `flush` is set when all until then is in the output."""
        if flush is not None:
            self._flushes.append(flush)
        self._edge = True
        self._wake()

    def end(self) -> None:
        """End after writing all that was sampled."""
        self._ending = True
        self._wake()

    def others(self, now: float) -> Loop | None:
        """If a source hangs: it stays with this thread, and the others get another one."""
        hanging = [one for one in self.sources if one.hangs(now)]
        if not hanging or len(self.sources) == 1:
            return None
        others = [one for one in self.sources if one not in hanging]
        self.sources = hanging
        return Loop(others, self._every, self._output, self.batch)

    def run(self) -> None:
        """Until `end`."""
        sampled, written = -math.inf, -1
        while not self._ending:
            flushes, self._flushes = self._flushes, []
            edge, self._edge = self._edge or written < 0, False
            if (left := sampled + CLOSE - time.monotonic()) > 0:
                time.sleep(left)
            sampled = time.monotonic()
            for one in self._each():
                one.sample(edge)
            together = max(1, min(self.batch, int(LONGEST_BATCH / self._every)))
            tick = int((sampled - self._output.began) / self._every)
            if flushes or tick // together != written // together:
                written = tick
                self._write()
                for flush in flushes:
                    flush.set()
            self._wait()
        self._write()
        for one in self._each():
            one.close()

    def _each(self) -> Iterator[Sampled]:
        # The last comes first: the host opens quickly, a driver may take seconds.
        for one in self.sources[::-1]:
            if one in self.sources:  # not given to another thread meanwhile
                yield one

    def _wait(self) -> None:
        """Until the next sample is due or requested."""
        began = self._output.began
        tick = math.floor((time.monotonic() - began) / self._every + 1e-6) + 1
        due = began + tick * self._every
        while not (self._edge or self._ending) and (left := due - time.monotonic()) > 0:
            self._awake.acquire(timeout=left)

    def _write(self) -> None:
        self._output.write([line for one in self._each() for line in one.take()])

    def _wake(self) -> None:
        with suppress(RuntimeError):  # it is awake, and looks before it sleeps
            self._awake.release()


def _serve(loops: list[Loop], output: Output) -> None:
    """Answer requests and check the sources, until the end."""
    parent, received = os.getppid(), b""
    checked = costed = time.monotonic()
    while not output.broken:
        if select.select([0], [], [], ROUND)[0]:
            new = os.read(0, 4096)
            *requests, received = (received + new).split(b"\n")
            if not new or b"end" in requests:
                return
            for request in requests:
                _answer(request.split(), loops, output)
        now = time.monotonic()
        if now - checked < ROUND:
            continue
        checked = now
        if os.getppid() != parent:
            return
        for loop in tuple(loops):
            if others := loop.others(now):
                loops.append(others)
                others.start()
        if now - costed >= COST:
            costed = now
            output.write([cost_line(now - output.began, time.process_time())])


def _answer(request: list[bytes], loops: Sequence[Loop], output: Output) -> None:
    match request:
        case [b"sample"]:
            for loop in loops:
                loop.request()
        case [b"batch", number]:
            for loop in loops:
                loop.batch = int(number)
        case [b"process", pid]:
            for loop in loops:
                for source in loop.sources:
                    source.follow(int(pid))
        case [b"flush", number]:
            flushes = [threading.Event() for _ in loops]
            for loop, flush in zip(loops, flushes, strict=True):
                loop.request(flush)
            until = time.monotonic() + FLUSH
            for flush in flushes:
                flush.wait(max(0.0, until - time.monotonic()))
            output.write([f'{{"flushed":{int(number)}}}'])


if __name__ == "__main__":
    status = 1
    try:
        main()
        status = 0
    except Exception as fault:  # noqa: BLE001 - the kernel reads this sentence and shows it
        print(f"{type(fault).__name__}: {fault}", file=sys.stderr, flush=True)
    finally:
        os._exit(status)  # a thread that hangs in a driver must not keep the process
