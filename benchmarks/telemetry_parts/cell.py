"""What runs in the kernel: training beside a panel, and what it takes with and without samples."""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

EVERY = 0.1
SETTLED = 3  # samples of every source before anything is timed
DEADLINE = 30  # seconds until the panel has something to show
STEPS = 8  # of training, some 5 ms
AHEAD = 0.005  # seconds before a sample at which its half of the time begins
TOGETHER = 10  # samples


class Training:
    """One job that goes on and on; a few steps of it at a time are what is timed."""

    def __init__(self) -> None:
        import tensorflow as tf

        import labkit
        from labkit.training import Job

        self._job = Job("dense", labkit.datasets.mnist(), replicas=labkit.replicas(1))
        self._job.epoch()
        self._order, self._steps = self._job.order(0), tf.constant(STEPS)
        self._firsts = [tf.constant(n) for n in range(0, self._job.steps_per_epoch - STEPS, STEPS)]

    def own_cpu(self, seconds: float) -> None:
        """Print as JSON the CPU seconds a second of the sampler, and of the kernel's threads that
        take its lines and send them on, while a job trains.
        """
        with _shown() as (sampler, _):
            named = ("labkit sampler", "IOPub")
            threads = [one.native_id for one in threading.enumerate() if one.name in named]

            def used() -> tuple[float, float]:
                kernel = sum(_seconds(os.getpid(), thread) for thread in threads if thread)
                return _seconds(sampler, sampler), kernel

            before, began = used(), time.monotonic()
            while (passed := time.monotonic() - began) < seconds:
                self._few_steps()
            grown = [(now - then) / passed for now, then in zip(used(), before, strict=True)]
        print(json.dumps(dict(zip(("sampler", "kernel"), grown, strict=True))), flush=True)

    def stretches(self, groups: int, size: int, seconds: float) -> None:
        """Print each group as JSON: the time of a few steps in stretches with the panel off and on,
        in turns.
        """
        with _shown() as (sampler, _):
            for _ in range(groups):
                group: dict[str, list[float]] = {"off": [], "on": []}
                for _ in range(size):
                    for state in random.sample(["off", "on"], 2):
                        # A sampler that is stopped samples nothing, and the kernel hears nothing.
                        os.kill(sampler, signal.SIGSTOP if state == "off" else signal.SIGCONT)
                        began, times = time.monotonic(), 0
                        while time.monotonic() < began + seconds:
                            self._few_steps()
                            times += 1
                        group[state].append((time.monotonic() - began) / times)
                print(json.dumps(group), flush=True)

    def around_samples(self, seconds: float) -> None:
        """Print, for some samples together, the seconds of a few steps in the half of the time that
        follows a sample, and in the other half.
        """
        with _shown() as (_, clock):
            samples: list[tuple[float, float]] = []
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                samples.append(self._around_a_sample(clock - AHEAD))
                if len(samples) == TOGETHER:
                    on, off = (sum(one) / TOGETHER for one in zip(*samples, strict=True))
                    print(json.dumps({"off": off, "on": on}), flush=True)
                    samples.clear()

    def _around_a_sample(self, zero: float) -> tuple[float, float]:
        """Samples are AHEAD after `zero`, and each tenth of a second from then on."""
        halves: tuple[list[float], list[float]] = ([], [])
        edge = time.monotonic()
        tick = (edge - zero) // EVERY
        while not (all(halves) and (edge - zero) // EVERY > tick):
            began = edge
            self._few_steps()
            edge = time.monotonic()
            later = ((began + edge) / 2 - zero) % EVERY >= EVERY / 2
            halves[later].append(edge - began)
        return sum(halves[0]) / len(halves[0]), sum(halves[1]) / len(halves[1])

    def _few_steps(self) -> None:
        self._job.run_steps(self._order, random.choice(self._firsts), self._steps)
        self._job.synchronize()


def _seconds(process: int, thread: int) -> float:
    """CPU seconds of a thread, in nanoseconds exact."""
    account = Path(f"/proc/{process}/task/{thread}/schedstat").read_text(encoding="ascii")
    return int(account.split()[0]) / 1e9


@contextmanager
def _shown() -> Iterator[tuple[int, float]]:
    """A panel in a front end; the process of its sampler, and when its first sample was due."""
    from IPython.display import display

    import labkit

    panel = labkit.panel(every=EVERY)
    (sampler,) = psutil.Process().children()
    try:
        display(panel)
        late = time.monotonic() + DEADLINE
        while not _shows(panel):
            if time.monotonic() > late:
                raise RuntimeError(f"the panel shows nothing after {DEADLINE} s")
            time.sleep(0.05)
        clock = panel.recording.header.clock
        gc.collect()
        yield sampler.pid, clock
    finally:
        sampler.send_signal(signal.SIGCONT)
        panel.stop()


def _shows(panel: Any) -> bool:
    series = panel.recording.series
    return len(series) > 0 and all(len(one.times) > SETTLED for one in series)
