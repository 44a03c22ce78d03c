"""One candidate in a process of its own: it samples the GPUs ten times a second, when asked to.

`python worker.py NAME` answers each line of standard input (a number of seconds) with the CPU
seconds that all its threads and processes used in that time, and how often it sampled. Starting,
stopping and everything that was imported are not counted.

Each peer is used as its own documentation says, in the cheapest way that still samples all GPUs.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import psutil

EVERY = 0.1
SETTLED = 0.3  # seconds after the first sample, before anything is counted
DEADLINE = 30  # seconds until the first sample
Samples = Callable[[], int]


@contextmanager
def labkit_panel() -> Iterator[Samples]:
    """All but the browser: GPUs and host, the sampler's process, the history in the kernel."""
    import labkit

    panel = labkit.panel(every=EVERY)
    try:
        yield lambda: sum(len(s.times) for s in panel.recording.series if s.source == "gpus")
    finally:
        panel.stop()


@contextmanager
def nvitop_statistics() -> Iterator[Samples]:
    """Its own thread samples; what is kept is the mean, minimum and maximum since the start."""
    from nvitop import Device, ResourceMetricCollector

    # Without root_pids it would also search for the processes of this one on every GPU.
    collector = ResourceMetricCollector(Device.all(), root_pids=(), interval=EVERY)
    with collector("benchmark"):
        yield lambda: len(collector._metric_buffer)


@contextmanager
def nvitop_kept() -> Iterator[Samples]:
    """The same, and each result is handed over and kept."""
    from nvitop import Device, ResourceMetricCollector

    kept: list[dict[str, float]] = []
    going = True

    def keep(metrics: dict[str, float]) -> bool:
        kept.append(metrics)
        return going

    collector = ResourceMetricCollector(Device.all(), root_pids=(), interval=EVERY)
    thread = collector.daemonize(keep)
    try:
        yield lambda: len(kept)
    finally:
        going = False
        thread.join(DEADLINE)


def gpustat_query() -> AbstractContextManager[Samples]:
    """One query after the other. Each sleeps 0.1 s per GPU, so ten a second are out of reach."""
    from gpustat import GPUStatCollection

    return _polled(GPUStatCollection.new_query)


@contextmanager
def nvdashboard_handler() -> Iterator[Samples]:
    """What its server extension does for an open "GPU Resources", ten times a second by default.

    The message is made and then dropped: neither the WebSocket's cost nor the panel's is counted.
    """
    from jupyterlab_nvdashboard.apps.gpu import GPUResourceWebSocketHandler
    from tornado.ioloop import IOLoop, PeriodicCallback

    samples = 0

    def drop(message: str) -> None:
        nonlocal samples
        samples += 1

    handler = object.__new__(GPUResourceWebSocketHandler)  # there is no request behind it
    handler.write_message = drop
    loops: list[IOLoop] = []

    def serve() -> None:
        loop = IOLoop(make_current=True)
        PeriodicCallback(handler.send_data, 1000 * EVERY).start()
        loops.append(loop)
        loop.start()
        loop.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield lambda: samples
    finally:
        loops[0].add_callback(loops[0].stop)
        thread.join(DEADLINE)


def nvidia_smi() -> AbstractContextManager[Samples]:
    """Started anew for each sample."""
    asked = "--query-gpu=index,utilization.gpu,memory.used,power.draw,temperature.gpu"
    command = ["nvidia-smi", asked, "--format=csv,noheader,nounits"]
    return _polled(lambda: subprocess.run(command, check=True, stdout=subprocess.PIPE))


@contextmanager
def _polled(sample: Callable[[], Any]) -> Iterator[Samples]:
    samples, going = 0, True

    def loop() -> None:
        nonlocal samples
        began = time.monotonic()
        while going:
            sample()
            samples += 1
            time.sleep(max(0.0, began + samples * EVERY - time.monotonic()))

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    try:
        yield lambda: samples
    finally:
        going = False
        thread.join(DEADLINE)


CANDIDATES: dict[str, Callable[[], AbstractContextManager[Samples]]] = {
    function.__name__: function
    for function in (
        labkit_panel, nvitop_statistics, nvitop_kept, gpustat_query, nvdashboard_handler,
        nvidia_smi,
    )
}  # fmt: skip


def measured(candidate: Callable[[], AbstractContextManager[Samples]], seconds: float) -> dict:
    with candidate() as samples:
        _first(samples)
        time.sleep(SETTLED)
        children = [child.pid for child in psutil.Process().children(recursive=True)]
        began, first = time.monotonic(), samples()
        before = _cpu_seconds(children)
        time.sleep(seconds)
        used = _cpu_seconds(children) - before
        spent = time.monotonic() - began
        return {"cpu": used / spent, "rate": (samples() - first) / spent}


def _first(samples: Samples) -> None:
    late = time.monotonic() + DEADLINE
    while samples() < 1:
        if time.monotonic() > late:
            raise SystemExit(f"It has not sampled once in {DEADLINE} s.")
        time.sleep(0.05)


def _cpu_seconds(children: list[int]) -> float:
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    alive = sum(_clock(pid) for pid in children)
    return time.process_time() + ended.ru_utime + ended.ru_stime + alive


def _clock(pid: int) -> float:
    """The CPU clock of another process, in nanoseconds; /proc counts in steps of 10 ms."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0  # it has ended, and is counted there


def work(name: str) -> None:
    # Whatever a candidate prints, the answers go another way.
    answers = os.fdopen(os.dup(1), "w")
    sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115  for as long as the process lives
    candidate = CANDIDATES[name]
    with candidate() as samples:  # not counted: it imports
        _first(samples)
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(measured(candidate, float(line))), file=answers, flush=True)


if __name__ == "__main__":
    work(sys.argv[1])
