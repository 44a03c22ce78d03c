"""labkit explain: what watching costs a step of about 5 ms.

    python benchmarks/explain.py [--overhead] [--quick] [--json FILE]

One program runs twice, alone and watched, and both take some steps in turns. A row is the time
alone over the time watched, by the clock and in seconds of CPU: 0.98 is what 2 % more gives.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from harness import Row, main

from labkit.timing import judge

HERE = Path(__file__).parent
LOOP = HERE / "explain_parts" / "loop.py"
PYTHONS = {
    "torch": HERE.parent / "environments" / "torch" / ".venv" / "bin" / "python",
    "tensorflow": Path(sys.executable),
}
STEPS = 40  # in turns
ALLOWED = 0.02


def overhead(quick: bool) -> list[Row]:
    """What watching costs, by framework."""
    rows = []
    for framework, python in PYTHONS.items():
        if not python.exists():
            print(f"{framework}: left out, {python} is not there (labkit env build {framework})")
            continue
        wall: list[float] = []
        cpu: list[float] = []
        for _ in range(1 if quick else 4):  # no process is like another
            pair = _turns([str(python), str(LOOP), framework], 20 if quick else 40)
            wall += [math.log(alone[0] / watched[0]) for alone, watched in pair]
            cpu += [math.log(alone[1] / watched[1]) for alone, watched in pair]
            step = min(alone[0] for alone, _ in pair) / STEPS
            print(f"{framework}: a step takes {1000 * step:.1f} ms alone", flush=True)
        rows += [_row(framework, "time", wall), _row(framework, "CPU time", cpu)]
    return rows


def _turns(command: list[str], times: int) -> list[tuple[list[float], list[float]]]:
    """Seconds of some steps, alone and watched, by the clock and of CPU; in turns."""
    explain = [sys.executable, "-m", "labkit.cli", "explain", "--for", "0", "--"]
    pipe = subprocess.PIPE
    found = []
    with (
        subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as alone,
        subprocess.Popen(
            [*explain, *command], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
        ) as watched,
    ):
        both = [alone, watched]
        for one in both:
            while one.stdout and one.stdout.readline() != "ready\n":
                pass
        for turn in range(times):
            order = both[:: 1 if turn % 2 else -1]
            seconds = {one.pid: _steps(one) for one in order}
            found.append((seconds[alone.pid], seconds[watched.pid]))
    return found


def _steps(process: subprocess.Popen[str]) -> list[float]:
    assert process.stdin is not None
    assert process.stdout is not None
    print(STEPS, file=process.stdin, flush=True)
    found: list[float] = json.loads(process.stdout.readline())
    return found


def _row(framework: str, what: str, gains: list[float]) -> Row:
    found = judge("watched", "alone", gains).estimate
    more, least, most = (100 * (1 / end - 1) for end in (found.value, found.high, found.low))
    word = "reached" if most < 100 * ALLOWED else "MISSED"
    if least < 100 * ALLOWED <= most:
        word = "cannot tell"
    print(
        f"{framework}, {what}: watching costs {more:+.2f} % ({least:+.2f} to {most:+.2f} %, "
        f"{len(gains)} turns); below {ALLOWED:.0%}: {word}",
        flush=True,
    )
    name = f"{framework}, {what} of steps alone / watched"
    return Row(name, "not watched", found.value, found.low, found.high)


BENCHMARKS: dict[str, Callable[[bool], list[Row]]] = {"--overhead": overhead}


def results(quick: bool) -> list[Row]:
    """Those that were asked for, or all."""
    return [row for one in ASKED or BENCHMARKS for row in BENCHMARKS[one](quick)]


ASKED = [one for one in sys.argv[1:] if one in BENCHMARKS]

if __name__ == "__main__":
    sys.argv[1:] = [one for one in sys.argv[1:] if one not in BENCHMARKS]
    sys.exit(main(results, __doc__))
