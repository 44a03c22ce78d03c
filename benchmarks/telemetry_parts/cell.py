"""What runs in the kernel: the same stretch of training, with a panel on and without, in turn."""

from __future__ import annotations

import gc
import json
import random
import time
from itertools import pairwise
from typing import Any

IMAGES = 24_000
SETTLED = 3  # looks at every source before a stretch begins
DEADLINE = 30  # seconds until the panel has something to show


class Training:
    """One job that goes on and on; a stretch of it is what is timed."""

    def __init__(self, seconds: float) -> None:
        import labkit
        from labkit.training import Job

        self._job = Job(
            "dense", labkit.datasets.mnist(), replicas=labkit.replicas(1), images=IMAGES
        )
        times = [sum(self._timed(1)) for _ in range(4)]
        self._epochs = max(1, round(seconds / min(times)))

    def pairs(self, count: int) -> None:
        """Print each pair of stretches as JSON: the seconds of their epochs, panel off and on."""
        for _ in range(count):
            order = random.sample(["off", "on"], 2)
            pair = {state: self._off() if state == "off" else self._on() for state in order}
            print(json.dumps(pair), flush=True)

    def _off(self) -> list[float]:
        return self._timed(self._epochs)

    def _on(self) -> list[float]:
        from IPython.display import display

        import labkit

        panel = labkit.panel()
        try:
            display(panel)
            late = time.monotonic() + DEADLINE
            while not _shows(panel):
                if time.monotonic() > late:
                    raise RuntimeError(f"the panel shows nothing after {DEADLINE} s")
                time.sleep(0.05)
            return self._timed(self._epochs)
        finally:
            panel.stop()

    def _timed(self, epochs: int) -> list[float]:
        gc.collect()  # what the panel's last picture left behind is not the training's
        edges = [time.perf_counter()]
        for _ in range(epochs):
            self._job.epoch()
            edges.append(time.perf_counter())
        return [end - start for start, end in pairwise(edges)]


def _shows(panel: Any) -> bool:
    series = panel.recording.series
    return len(series) > 0 and all(len(one.times) > SETTLED for one in series)
