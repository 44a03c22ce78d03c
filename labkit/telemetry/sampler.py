"""The sampler: a process that samples the GPUs and the host while the notebook's kernel is busy.

    python -P -m labkit.telemetry.sampler --pid 4242 --every 0.1 --clock 1234.5

It writes the lines of `format`: sources, then rows in batches. A batch is a single write of whole
lines. Requests come on standard input, each on a line:

    sample      sample now (the edge of a span); written with the next batch
    flush N     sample now, write everything, then the line {"flushed": N}
    show        a page shows the samples: batches of half a second from now on
    process P   from now on, the memory of process P, and P is the program that is watched
    end         write everything and exit; the end of standard input and of the parent do the same

It is a process, because a kernel that computes holds Python's global lock: a thread of it would
sample late, or not at all. One loop samples everything: a second thread took 25 % more CPU time.
A driver that does not return from a call stops the loop: then a thread sees the parent's end.
"""

import argparse
import gc
import os
import select
import signal
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from labkit.telemetry.amd import AmdGpus
from labkit.telemetry.format import Cost, RecordingEnd, Source, line, row_line
from labkit.telemetry.host import Host
from labkit.telemetry.metrics import DeviceState, Processes
from labkit.telemetry.nvidia import NvidiaGpus

BATCH = 2.5  # seconds of samples in one write
SHOWN = 0.5  # the same where a page shows them
CLOSE = 0.005  # seconds; requests that come nearer than this share a sample
PIPE, F_SETPIPE_SZ = 1 << 20, 1031  # fcntl has the name on Linux only
AnySource = NvidiaGpus | AmdGpus | Host


def main() -> None:
    """Sample until the end of standard input."""
    parser = argparse.ArgumentParser(prog="python -m labkit.telemetry.sampler")
    parser.add_argument("--every", type=float, required=True, help="seconds between two samples")
    parser.add_argument("--clock", type=float, required=True, help="time.monotonic() at its time 0")
    parser.add_argument("--pid", type=int, required=True, help="whose memory is shown")
    given = parser.parse_args()
    for signum in (signal.SIGINT, signal.SIGTERM):  # meant for the program that is watched
        signal.signal(signum, signal.SIG_IGN)
    with suppress(ImportError, OSError):  # Linux only: room for minutes of samples
        import fcntl

        fcntl.fcntl(1, F_SETPIPE_SZ, PIPE)
    gc.disable()  # there are no cycles here, and looking for them costs
    threading.Thread(target=_exit_with, args=(os.getppid(),), daemon=True).start()
    gpus = NvidiaGpus(pid=given.pid)
    both = AmdGpus(gpus)
    sources = [both if both.folders else gpus, Host(given.pid)]
    Sampler(sources, given.every, given.clock).run()


def _exit_with(parent: int) -> None:
    """A fork of the kernel may hold the other end of the pipe open, so its end is not enough."""
    while os.getppid() == parent:
        time.sleep(3.0)
    os._exit(0)  # the loop may hang in a driver


class Sampler:
    """Samples its sources on a schedule that does not drift. `began` is time 0 of the recording."""

    def __init__(self, sources: Sequence[AnySource], every: float, began: float) -> None:
        self._sources, self._every, self._began = sources, every, began
        self._received = b""
        self._together = max(1, round(BATCH / every))  # samples in a batch
        self._lines: list[str] = []  # that are not written yet
        self._arrived = select.poll()  # costs less than select()
        self._arrived.register(0, select.POLLIN)

    def run(self) -> None:
        """Sample until the end of the requests."""
        opened = []
        for number, source in enumerate(self._sources):
            devices, states = source.open()
            self._lines.append(line(Source(source.name, source.metrics, devices)))
            self._tell(*states)
            if devices:
                opened.append((number, source))
        edge, flushes, written = True, list[int](), -1
        with suppress(EOFError):
            while True:
                sampled = time.monotonic()
                for _, source in opened:
                    source.sample(edge)
                tick = int((sampled - self._began) / self._every + 1e-6)
                if flushes or tick // self._together != written // self._together:
                    written = tick
                    self._take(opened)
                    self._lines += [f'{{"flushed":{number}}}' for number in flushes]
                    self._write()
                edge, flushes, due = False, [], self._began + (tick + 1) * self._every
                while not edge and self._arrived.poll(1000 * max(0.0, due - time.monotonic())):
                    edge, flushes = self._requests()
                if edge:
                    time.sleep(max(0.0, sampled + CLOSE - time.monotonic()))
        for _, source in opened:
            source.sample(edge=True)
        self._take(opened)
        now = round(time.monotonic() - self._began, 4)
        self._lines += [line(Cost(round(time.process_time(), 4), now)), line(RecordingEnd(now))]
        self._write()

    def _take(self, opened: Sequence[tuple[int, AnySource]]) -> None:
        """Make lines of all samples since the last call."""
        for number, source in opened:
            rows, states = source.take()
            self._tell(*states)
            self._lines += [row_line(number, at - self._began, values) for at, values in rows]

    def _requests(self) -> tuple[bool, list[int]]:
        """Do what was requested. Returns whether to sample at once, and the numbers of flushes."""
        edge, flushes = False, list[int]()
        new = os.read(0, 4096)
        *requests, self._received = (self._received + new).split(b"\n")
        for request in requests if new else [b"end"]:
            match request.split():
                case [b"end"]:
                    raise EOFError
                case [b"sample"]:
                    edge = True
                case [b"flush", number]:
                    edge, flushes = True, [*flushes, int(number)]
                case [b"show"]:
                    self._together = max(1, round(SHOWN / self._every))
                case [b"process", pid]:
                    for source in self._sources:
                        source.follow(int(pid))
        return edge, flushes

    def _tell(self, *states: DeviceState | Processes) -> None:
        self._lines += [
            line(replace(state, time=round(state.time - self._began, 4))) for state in states
        ]

    def _write(self) -> None:
        left = "".join([f"{text}\n" for text in self._lines]).encode()
        self._lines.clear()
        while left:
            left = left[os.write(1, left) :]


if __name__ == "__main__":
    with suppress(BrokenPipeError):  # the reader has ended
        main()
