"""The rates under the roofline, beside the same calls timed by pyperf.

Products of matrices and copies of several sizes, on one thread. Each row is labkit's rate over the
peer's: 1 is agreement, and 5 % either way are allowed. Both are measured in turns, and the interval
is that of the turns. pyperf counts wall time, and labkit CPU time, so on a busy machine pyperf's
best value is still too long now and then: its ratio is above 1 then.

pyperf is needed by this benchmark alone; where it is not installed, timeit takes its place.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from harness import Row, main

from labkit.limits.rates import COPIES, THREADS, Rate, copy_rate, gemm_rate

ALLOWED = 0.05
# Both peers run their setup again before each value, so it makes the first, slow call as well.
PRODUCT = (
    "import numpy as np; a, b = np.random.default_rng(0).random((2, {n}, {n}), 'float32'); "
    "c = np.empty_like(a); np.matmul(a, b, c)",
    "np.matmul(a, b, c)",
)
COPY = (
    "import numpy as np; a = np.ones({n} // 4, 'float32'); b = np.empty_like(a); np.copyto(b, a)",
    "np.copyto(b, a)",
)
BY_TIMEIT = """
import sys, timeit
timer = timeit.Timer(sys.argv[2], sys.argv[1])
loops = max(1, round(0.005 / min(timer.repeat(3, 1))))
print(min(timer.repeat(60, loops)) / loops)
"""


def by_pyperf(setup: str, statement: str) -> float:
    """The best of the values of five processes, in seconds."""
    import pyperf

    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder, "found.json")
        command = ["timeit", "-q", "-p", "5", "-n", "12", "-w", "1", "--min-time", "0.005"]
        command += ["--inherit-environ", ",".join(THREADS), "-o", str(found), "-s", setup]
        _run(["-m", "pyperf", *command, statement])
        return float(min(pyperf.Benchmark.load(str(found)).get_values()))


def by_timeit(setup: str, statement: str) -> float:
    return float(_run(["-c", BY_TIMEIT, setup, statement]))


def _run(arguments: list[str]) -> str:
    return subprocess.run(
        [sys.executable, *arguments], env=os.environ | dict.fromkeys(THREADS, "1"),
        check=True, capture_output=True, text=True, timeout=120,
    ).stdout  # fmt: skip


def results(quick: bool) -> list[Row]:
    peer, seconds = ("pyperf", by_pyperf) if find_spec("pyperf") else ("timeit", by_timeit)
    ours: dict[str, tuple[Callable[[], Rate], tuple[str, str], int]] = {
        f"product of {n} × {n}": (lambda n=n: gemm_rate(n, windows=3), PRODUCT, n)
        for n in (512, 1024)
    }
    ours |= {
        f"copy, {place}": (lambda n=n: copy_rate(n, windows=3), COPY, n)
        for place, n in COPIES.items()
    }
    rows = []
    for what, (measure, (setup, statement), n) in ours.items():
        rates, theirs = [], []
        for _ in range(2 if quick else 6):
            rates.append(measure())
            theirs.append(rates[-1].work / seconds(setup.format(n=n), statement))
        best = max(rate.value for rate in rates) / max(theirs)
        turns = [rate.value / other for rate, other in zip(rates, theirs, strict=True)]
        reached = "reached" if abs(best - 1) <= ALLOWED else "MISSED"
        taken = statistics.median(rate.taken for rate in rates)
        print(
            f"{what}: within {ALLOWED:.0%}: {reached}; other programs had {taken:.0%}", flush=True
        )
        rows.append(Row(what, peer, best, min(best, *turns), max(best, *turns)))
    return rows


if __name__ == "__main__":
    sys.exit(main(results, __doc__))
