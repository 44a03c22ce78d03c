"""The sampler: one process that samples the GPUs and the host while the notebook's kernel is busy.

    python -P -m labkit.telemetry.sampler --pid 4242 --header '{"labkit":"recording", …}'

It writes the lines of `format`: header, sources, then rows in batches. One batch is one write of
whole lines. Requests come on standard input, one a line:

    sample      sample now (the edge of a span); written with the next batch
    flush N     sample now, write everything, then the line {"flushed": N}
    batch N     from now on, write N samples together: 5 while a page shows them, 1 for a file; at
                first 20; never more than 2 s together
    process P   from now on, the memory of process P
    end         write everything and exit; the end of standard input and of the parent do the same

It is a process, because a kernel that computes holds Python's global lock: a thread of it would
sample late, or not at all. One loop samples everything: a second thread took 25 % more CPU time.
A driver that does not return from a call stops the loop; a thread that wakes once a second says so.
"""

from __future__ import annotations

import argparse
import math
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from labkit.telemetry.format import Cost, End, Header, Source, line, read_line, row_line
from labkit.telemetry.gpus import Gpus
from labkit.telemetry.host import Host
from labkit.telemetry.metrics import State

__all__ = ["Sampler", "main"]

BATCH = 20
LONGEST_BATCH = 2.0  # seconds
HANGS = 2.0  # seconds after which a call that does not return is told
CLOSE = 0.005  # seconds; requests that come nearer than this share a sample
NAMES = {"gpus": "The GPU driver", "host": "The processor"}  # of the sources, in a sentence
PIPE, F_SETPIPE_SZ = 1 << 20, 1031  # fcntl has the name on Linux only


def main() -> None:
    """Sample until the end of standard input."""
    parser = argparse.ArgumentParser(prog="python -m labkit.telemetry.sampler")
    parser.add_argument("--header", required=True, help="the first line of the recording")
    parser.add_argument("--pid", type=int, required=True, help="whose memory is shown")
    given = parser.parse_args()
    header = read_line(given.header)
    assert isinstance(header, Header)
    for signum in (signal.SIGINT, signal.SIGTERM):  # meant for the program that is watched
        signal.signal(signum, signal.SIG_IGN)
    with suppress(ImportError, OSError):  # Linux only: room for minutes of samples
        import fcntl

        fcntl.fcntl(1, F_SETPIPE_SZ, PIPE)
    print(given.header, flush=True)
    sampler = Sampler([Gpus(given.pid), Host(given.pid)], header.every, header.clock)
    threading.Thread(target=_watch, args=(sampler, os.getppid()), daemon=True).start()
    sampler.run()


def _watch(sampler: Sampler, parent: int) -> None:
    sampler.watch(parent)
    os._exit(0)  # the loop may hang in a driver


class Sampler:
    """Samples its sources on a schedule that does not drift. `began` is the recording's time 0."""

    def __init__(
        self,
        sources: Sequence[Gpus | Host],
        every: float,
        began: float,
        streams: tuple[int, int] = (0, 1),
    ) -> None:
        self._sources, self._every, self._began = sources, every, began
        self._requests, self._output = streams
        self._received, self._batch = b"", BATCH
        self._lines: list[str] = []  # that are not written yet
        self._call: tuple[str, float] | None = None  # the source that is asked, and since when
        self._hung: tuple[str, float] | None = None  # the call of which was said that it hangs
        self._lock = threading.Lock()
        self._arrived = select.poll()  # costs less than select()
        self._arrived.register(self._requests, select.POLLIN)

    def run(self) -> None:
        """Sample until the end of the requests."""
        opened = []
        for number, source in enumerate(self._sources):
            devices, states = self._ask(source, source.open)
            self._lines.append(line(Source(source.name, source.metrics, devices)))
            self._tell(*states)
            if devices:
                opened.append((number, source))
        edge, flushes, written = True, list[int](), -1
        while True:
            sampled = time.monotonic()
            for _, source in opened:
                self._ask(source, source.sample, edge)
            tick = int((sampled - self._began) / self._every)
            together = max(1, min(self._batch, int(LONGEST_BATCH / self._every)))
            if flushes or tick // together != written // together:
                written = tick
                self._take(opened)
                self._lines += [f'{{"flushed":{number}}}' for number in flushes]
                self._write()
            try:
                edge, flushes = self._wait(sampled)
            except EOFError:
                break
        self._take(opened)
        now = round(time.monotonic() - self._began, 4)
        self._lines += [line(Cost(round(time.process_time(), 4), now)), line(End(now))]
        self._write()

    def watch(self, parent: int) -> None:
        """Say of a call that it does not return, once; until the parent has ended."""
        while os.getppid() == parent:
            time.sleep(1.0)
            call = self._call
            if call is None or call is self._hung or time.monotonic() - call[1] < HANGS:
                continue
            self._hung = call
            says = f"{NAMES[call[0]]} has not answered for {HANGS:g} s, and sampling waits for it."
            state = State(round(time.monotonic() - self._began, 4), call[0], "", "silent", says)
            self._write([line(state)])

    def _ask(self, source: Gpus | Host, ask: Callable[..., Any], *arguments: Any) -> Any:
        """What a source answers. A driver may hang: `watch` sees since when."""
        self._call = call = source.name, time.monotonic()
        answer = ask(*arguments)
        self._call = None
        if self._hung is call:
            says = f"{NAMES[source.name]} answers again."
            self._tell(State(time.monotonic(), source.name, "", "fine", says))
        return answer

    def _take(self, opened: Sequence[tuple[int, Gpus | Host]]) -> None:
        """The lines of all samples since the last time."""
        for number, source in opened:
            rows, states = self._ask(source, source.take)
            self._tell(*states)
            self._lines += [row_line(number, row, self._began) for row in rows]

    def _wait(self, sampled: float) -> tuple[bool, list[int]]:
        """Until the next sample is due, or requested: for the edge of a span, or for flushes."""
        ticks = math.floor((time.monotonic() - self._began) / self._every + 1e-6) + 1
        due = self._began + ticks * self._every
        edge, flushes = False, list[int]()
        while not edge:
            left = max(0.0, due - time.monotonic())
            if not self._arrived.poll(1000 * left):
                return False, []
            new = os.read(self._requests, 4096)
            *requests, self._received = (self._received + new).split(b"\n")
            for request in requests if new else [b"end"]:
                match request.split():
                    case [b"end"]:
                        raise EOFError
                    case [b"sample"]:
                        edge = True
                    case [b"flush", number]:
                        edge, flushes = True, [*flushes, int(number)]
                    case [b"batch", number]:
                        self._batch = int(number)
                    case [b"process", pid]:
                        for source in self._sources:
                            source.follow(int(pid))
        time.sleep(max(0.0, sampled + CLOSE - time.monotonic()))
        return True, flushes

    def _tell(self, *states: State) -> None:
        self._lines += [
            line(replace(state, time=round(state.time - self._began, 4))) for state in states
        ]

    def _write(self, lines: Sequence[str] | None = None) -> None:
        """Write these lines at once, or all that wait."""
        if lines is None:
            lines, self._lines = self._lines, []
        left = "".join([f"{one}\n" for one in lines]).encode()
        with self._lock:
            while left:
                left = left[os.write(self._output, left) :]


if __name__ == "__main__":
    with suppress(BrokenPipeError):  # the reader has ended
        main()
