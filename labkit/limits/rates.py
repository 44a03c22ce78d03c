"""What one core of this machine can do: multiply matrices and copy bytes, per second.

A busy machine stretches wall time, but not CPU time. So each rate is of the best calls of several
windows by the CPU clock of this process, and the wall clock beside it tells what other programs
took. Their traffic to memory slows a copy even so.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from labkit.kinds import Kind, LabError, bytes_text, measured, percent_text

CALLS, SHORTEST = 20, 0.003  # calls in a window, and seconds that each takes at least
COPIES = {"L2": 256 << 10, "L3": 4 << 20, "memory": 64 << 20}  # where they fit in most CPUs
LONGEST = 120  # seconds until a measurement is given up
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
WAITED = 1.1  # wall over CPU seconds: from here on other programs had the core too often


@dataclass(frozen=True)
class Rate:
    """Work per second of one thread. `windows` holds the best seconds of each window."""

    what: str
    work: float
    unit: str
    windows: tuple[float, ...]
    taken: float
    """Share of the time that other programs had the core, in the middle one of the windows."""
    kind: Kind

    @property
    def value(self) -> float:
        """FLOP or bytes per second, of the best call."""
        return self.work / min(self.windows)

    def __repr__(self) -> str:
        text = f"{self.what}: {self.value / 1e9:.3g} G{self.unit}, {self.kind}"
        if self.taken > 1 - 1 / WAITED:
            text += f"; other programs had the core for {percent_text(self.taken)} of the time"
        return text


def gemm_rate(size: int = 1024, *, windows: int = 6, pause: float = 0.3) -> Rate:
    """Measure float32 products of two square matrices with NumPy, on one thread."""
    return _alone("gemm", size, windows, pause)


def copy_rate(size: int = COPIES["memory"], *, windows: int = 6, pause: float = 0.3) -> Rate:
    """Measure copies of `size` bytes in main memory or, if they fit, in a cache.

    A copy reads and writes, so it moves twice `size` bytes.
    """
    return _alone("copy", size, windows, pause)


def _alone(*what: str | float) -> Rate:
    """Measure in a process of its own, since a library's number of threads is set at its start."""
    one = dict.fromkeys(THREADS, "1")
    command = [sys.executable, "-m", "labkit.limits.rates", *map(str, what)]
    done = subprocess.run(
        command, env=os.environ | one, capture_output=True, text=True, timeout=LONGEST
    )
    if done.returncode:
        raise LabError(f"The rate could not be measured: {done.stderr.strip()[-300:]}")
    found = json.loads(done.stdout)
    found["windows"] = tuple(found["windows"])
    return Rate(**found | {"kind": Kind(**found["kind"])})


def _main(what: str, size: int, windows: int, pause: float) -> None:
    import numpy as np

    if what == "gemm":
        left, right = np.random.default_rng(0).random((2, size, size), dtype="float32")
        out = np.empty_like(left)
        of, unit, work = f"product of {size} × {size} matrices", "FLOP/s", 2 * size**3

        def call() -> None:
            np.matmul(left, right, out)
    else:
        source = np.ones(size // 4, dtype="float32")
        target = np.empty_like(source)
        of, unit, work = f"copy of {bytes_text(source.nbytes)}", "B/s", 2 * source.nbytes

        def call() -> None:
            np.copyto(target, source)

    print(json.dumps(asdict(best(call, work, of, unit, windows, pause))))


def best(
    call: Callable[[], object], work: float, what: str, unit: str = "FLOP/s", windows: int = 3,
    pause: float = 0.1,
) -> Rate:  # fmt: skip
    """Time a call that works on one thread, in windows with pauses between them."""
    call()
    began = time.process_time()
    call()
    repeats = max(1, round(SHORTEST / max(time.process_time() - began, 1e-7)))
    fastest, taken = [], []
    for window in range(windows):
        if window:
            time.sleep(pause)
        cpu, wall = zip(*(_timed(call, repeats) for _ in range(CALLS)), strict=True)
        fastest.append(min(cpu) / repeats)
        taken.append(max(0.0, 1 - sum(cpu) / sum(wall)))
    middle = statistics.median(taken)
    return Rate(what, work, unit, tuple(fastest), middle, measured("one core of this machine"))


def _timed(call: Callable[[], object], repeats: int) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(repeats):
        call()
    return time.process_time() - cpu, time.perf_counter() - wall


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
