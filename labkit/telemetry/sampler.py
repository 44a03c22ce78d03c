"""The sampler: one process that samples the GPUs and the host while the notebook's kernel is busy.

    python -P -m labkit.telemetry.sampler --every 0.1 --pid 4242 --clock C --where W

    --sources gpus,host   what is sampled
    --continued           the header is already written
    --batch N             write N samples together (default 20, never more than 2 s together)

It writes the lines of `format`: header, sources, then rows in batches. One batch is one write of
whole lines. Requests come on standard input, one a line; others are ignored:

    sample      sample now (the edge of a span); written with the next batch
    flush N     sample now, write everything, then the line {"flushed": N}; a source that does not
                answer within 0.2 s is left out
    batch N     from now on, N samples together: 5 while a page shows them, 1 for a file
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
import stat
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Protocol

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
from labkit.telemetry.metrics import Device, Row, SourceLost, State, Why

__all__ = ["Loop", "Output", "Sampled", "Source", "main"]

BATCH = 20
LONGEST_BATCH = 2.0  # seconds
ROUND = 1.0  # seconds between two checks of the parent and of calls that hang
COST = 5.0  # seconds between two lines about the sampler's own cost
FIRST = 1.0  # seconds that the header waits for the names of the devices
FLUSH = 0.2  # seconds that a flush waits for a source
HANGS = 2.0  # seconds after which a call that does not return is told, and nothing waits for it
CLOSE = 0.005  # seconds; requests that come nearer than this share a sample
PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)  # until a source that failed is opened again
PIPE, F_SETPIPE_SZ = 1 << 20, 1031  # fcntl has the name on Linux only


class Source(Protocol):
    """What is sampled: `gpus.Gpus`, `host.Host`. Any call may raise, and may hang."""

    name: str
    metrics: tuple[str, ...]

    def open(self) -> tuple[tuple[Device, ...], tuple[State, ...]]:
        """The devices, and what is known about them from the start."""
        ...

    def sample(self, edge: bool = False) -> None:
        """Sample now, as quickly as possible, and keep it. `edge`: of a span."""
        ...

    def take(self) -> tuple[list[Row], tuple[State, ...]]:
        """The rows of all samples since the last time, and what became known."""
        ...

    def follow(self, pid: int) -> None:
        """From now on `process_memory` is of this process; called from another thread."""
        ...

    def close(self) -> None:
        """Let go. May be called twice."""
        ...


def main(arguments: Sequence[str] | None = None) -> None:
    """Sample until the end of standard input."""
    given = _arguments(arguments)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is meant for the cell
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    began = time.monotonic() if given.clock is None else given.clock
    output = Output(_standard_output())
    sources = [
        Sampled(number, source_named(name, given.pid), began, output)
        for number, name in enumerate(given.sources.split(","))
    ]
    loops = [Loop(sources, given.every, began, output, given.batch)]
    try:
        loops[0].start()
        until = time.monotonic() + FIRST
        for source in sources:
            source.tried.wait(max(0.0, until - time.monotonic()))
        when = datetime.now().astimezone().isoformat(timespec="seconds")
        header = header_line(Header(given.where, when, given.every, began))
        output.begin(sources, [] if given.continued else [header])
        _serve(loops, output, began)
    except SystemExit:
        pass  # SIGTERM
    _end(loops, output, began)


def source_named(name: str, pid: int) -> Source:
    """The source of that name; `pid` is the process whose memory it shows."""
    if name == "gpus":
        return Gpus(pid)
    if name == "host":
        return Host(pid)
    raise ValueError(f"--sources must be gpus or host, got {name!r}")


class Sampled:
    """One source and its lines. It is opened again when it fails; no call here raises."""

    def __init__(self, number: int, source: Source, began: float, output: Output) -> None:
        self.devices: tuple[Device, ...] = ()
        self.tried = threading.Event()  # to open it
        self._number, self._source = number, source
        self._began, self._output = began, output
        self._lines: list[str] = []
        self._open = False
        self._failures, self._retry = 0, -math.inf
        self._since: float | None = None  # when the call began that is under way
        self._hangs = False
        self._last = -math.inf  # time of the last row

    def sample(self, edge: bool) -> None:
        """Sample now; open it before, if that is due."""
        now = time.monotonic()
        if not self._open and now < self._retry:
            return
        self._since = now
        try:
            if not self._open:
                self._open_source()
            if self.devices:
                self._source.sample(edge)
            if self._failures:
                self._failures = 0
                self._tell("fine", f"{self._source.name} can be read again.")
        except Exception as fault:  # noqa: BLE001 - a driver may fail in any way
            self._fail(fault)
        self._since = None

    def take(self) -> list[str]:
        """The lines of all samples since the last time."""
        if self.devices and self._open:
            self._since = time.monotonic()
            try:
                self._take_rows()
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

    def source_line(self) -> str:
        """The source and its devices."""
        return source_line(self._source.name, self._source.metrics, self.devices)

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
            self._output.write([state_line(state, self._began)])
        return True

    def _open_source(self) -> None:
        self.devices, states = self._source.open()
        self._open = True
        if self._output.begun:  # else the line comes with the header
            self._lines.append(self.source_line())
        self._lines += [state_line(state, self._began) for state in states]
        self.tried.set()

    def _take_rows(self) -> None:
        rows, states = self._source.take()
        self._lines += [state_line(state, self._began) for state in states]
        for row in rows:
            if row.time > self._last:  # time goes forward, or sums over time would be wrong
                self._lines.append(row_line(self._number, row, self._began))
                self._last = row.time

    def _fail(self, fault: Exception) -> None:
        """Say why, keep what there is, and try again after a pause."""
        with suppress(Exception):
            self._take_rows()
        if not self._failures:
            reason = f"{type(fault).__name__}: {fault}"
            says = (
                f"{self._source.name} cannot be read at the moment ({reason}). It is tried again."
            )
            if isinstance(fault, SourceLost):
                self._tell(fault.why, fault.says)
            else:
                self._tell("silent", says)
        self.close()
        self._failures += 1
        self._retry = time.monotonic() + PAUSES[min(self._failures, len(PAUSES)) - 1]
        self.tried.set()

    def _tell(self, why: Why, says: str) -> None:
        state = State(time.monotonic(), self._source.name, "", why, says)
        self._lines.append(state_line(state, self._began))


class Loop(threading.Thread):
    """Samples its sources on a schedule that does not drift.

    One thread for all sources, because to be woken costs a quarter of all: a second thread made
    the sampler 25 % dearer. A source whose call hangs is left with this thread, see `others`.
    """

    def __init__(
        self, sources: Sequence[Sampled], every: float, began: float, output: Output, batch: int
    ) -> None:
        super().__init__(name="sampling", daemon=True)
        self.sources, self.batch = list(sources), batch
        self._every, self._began, self._output = every, began, output
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
        return Loop(others, self._every, self._began, self._output, self.batch)

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
            tick = int((sampled - self._began) / self._every)
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
        tick = math.floor((time.monotonic() - self._began) / self._every + 1e-6) + 1
        due = self._began + tick * self._every
        while not (self._edge or self._ending) and (left := due - time.monotonic()) > 0:
            self._awake.acquire(timeout=left)

    def _write(self) -> None:
        self._output.write([line for one in self._each() for line in one.take()])

    def _wake(self) -> None:
        with suppress(RuntimeError):  # it is awake, and looks before it sleeps
            self._awake.release()


class Output:
    """Where the lines go, after the header. One batch is one write.

    A pipe that is full makes no source wait: what does not fit is written later.
    """

    def __init__(self, descriptor: int) -> None:
        self.begun = False
        self.fault: OSError | None = None  # nothing can be written any more
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._held: list[str] = []  # lines that wait for the header
        self._unsent = bytearray()

    def begin(self, sources: Sequence[Sampled], header: list[str]) -> None:
        """Write the lines that come before all others."""
        self.begun = True
        with self._lock:
            lines = [*header, *(one.source_line() for one in sources), *self._held]
            self._send(lines)
            self._held = []

    def write(self, lines: Sequence[str]) -> None:
        """Write these lines, and what was left."""
        with self._lock:
            if self.begun:
                self._send(lines)
            else:
                self._held += lines

    def drain(self, seconds: float) -> None:
        """Wait so long for a reader to take what is left."""
        until = time.monotonic() + seconds
        while self._unsent and not self.fault and (left := until - time.monotonic()) > 0:
            select.select([], [self._descriptor], [], left)
            self.write([])

    def _send(self, lines: Sequence[str]) -> None:
        self._unsent += "".join([f"{line}\n" for line in lines]).encode()
        while self._unsent and not self.fault:
            try:
                del self._unsent[: os.write(self._descriptor, self._unsent)]
            except BlockingIOError:
                return
            except OSError as fault:
                self.fault = fault


def _serve(loops: list[Loop], output: Output, began: float) -> None:
    """Answer requests and check the sources, until the end."""
    parent, received = os.getppid(), b""
    checked = costed = time.monotonic()
    while not output.fault:
        if select.select([0], [], [], ROUND)[0]:
            new = os.read(0, 4096)
            *requests, received = (received + new).split(b"\n")
            for request in requests:
                if request == b"end":
                    return
                _answer(request.split(), loops, output)
            if not new:
                return
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
            output.write([cost_line(now - began, time.process_time())])


def _answer(request: list[bytes], loops: Sequence[Loop], output: Output) -> None:
    match request:
        case [b"sample"]:
            for loop in loops:
                loop.request()
        case [b"batch", number] if number.isdigit():
            for loop in loops:
                loop.batch = int(number)
        case [b"process", pid] if pid.isdigit():
            for loop in loops:
                for source in loop.sources:
                    source.follow(int(pid))
        case [b"flush", number] if number.isdigit():
            flushes = [threading.Event() for _ in loops]
            for loop, flush in zip(loops, flushes, strict=True):
                loop.request(flush)
            until = time.monotonic() + FLUSH
            for flush in flushes:
                flush.wait(max(0.0, until - time.monotonic()))
            output.write([f'{{"flushed":{int(number)}}}'])


def _end(loops: Sequence[Loop], output: Output, began: float) -> None:
    for loop in loops:
        loop.end()
    until = time.monotonic() + FLUSH
    for loop in loops:
        loop.join(max(0.0, until - time.monotonic()))
    now = time.monotonic() - began
    output.write([cost_line(now, time.process_time()), end_line(now)])
    output.drain(1.0)


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m labkit.telemetry.sampler")
    parser.add_argument("--every", type=float, default=0.1, help="seconds between two samples")
    parser.add_argument("--pid", type=int, default=os.getppid(), help="whose memory is shown")
    parser.add_argument("--sources", default="gpus,host")
    parser.add_argument("--where", default="", help="what the recording is of")
    parser.add_argument("--clock", type=float, help="time.monotonic() when time was 0")
    parser.add_argument("--continued", action="store_true", help="the header is already written")
    parser.add_argument(
        "--batch", type=int, default=BATCH, help="samples that are written together"
    )
    return parser.parse_args(arguments)


def _standard_output() -> int:
    if stat.S_ISFIFO(os.fstat(1).st_mode):  # a terminal is shared with the shell
        os.set_blocking(1, False)
        with suppress(ImportError, OSError):  # Linux only: room for minutes of samples
            import fcntl

            fcntl.fcntl(1, F_SETPIPE_SZ, PIPE)
    return 1


if __name__ == "__main__":
    status = 1
    try:
        main()
        status = 0
    except Exception as fault:  # noqa: BLE001 - the kernel reads this sentence and shows it
        print(f"{type(fault).__name__}: {fault}", file=sys.stderr)
    finally:
        with suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(status)  # a thread that hangs in a driver must not keep the process
