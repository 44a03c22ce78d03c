"""From the start of a cell to the first line of a 4-rank TensorFlow program, cold and warm.

The program imports TensorFlow and prints a line, then adds two numbers with it and prints the sum.
Each time ends when the last rank's first line, or sum, is on the screen. Each launcher is called by
a process of its own that runs already, as a notebook's kernel does; every round calls all of them,
one after the other, in a random order. Cold is the first program that this process starts, warm the
second one, a second later.

- labkit: `with labkit.cluster(ranks=4)`, a block for each program, as in two cells.
- multiprocessing with spawn, mpiexec (the one that labkit itself uses), torchrun: each program gets
  new processes, which load TensorFlow again; for them, warm and cold are the same work.
- ipyparallel: the engines are started for the first program and also run the second one. These are
  not new processes: TensorFlow is not only loaded but has run, and what the first program has left
  behind is still there. (A second program with collectives hung in such engines when it was tried.)

torchrun is the one on the path, or LABKIT_TORCHRUN=/path/of/it; ipyparallel lives in .venv/peers,
made on first use from requirements/peers.txt. A launcher that is missing is left out, and named.
--quick is one round, in which launchers of new processes are called once, for cold and warm.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness import Row, main
from peers import peers_are_there, peers_python

PARTS = Path(__file__).resolve().parent / "launch_parts"
ROUNDS = 5
PAUSE = 1.0  # seconds between two cells
OURS = "labkit"
PEERS = {
    "torchrun": "torchrun",
    "mpiexec": "mpiexec",
    "spawn": "multiprocessing spawn",
    "ipyparallel": "ipyparallel",
}
KEEPING = (OURS, "ipyparallel")  # these keep processes, and start more programs
WARM = 5
KEPT = "ipyparallel, same engines again"  # its second program


@dataclass(frozen=True)
class Launch:
    """One round of one launcher: seconds to the first line, and to the sum, of both programs."""

    cold: tuple[float, float]
    warm: tuple[float, float]
    """The median of the later ones."""


def launchers(quick: bool) -> dict[str, tuple[Path, dict[str, str]]]:
    """The launchers that are here: Python and environment of the process that calls each."""
    mine = (Path(sys.executable), dict(os.environ))
    found = {OURS: mine, "spawn": mine}
    if importlib.util.find_spec("mpi4py") is not None:
        found["mpiexec"] = mine
    torchrun = os.environ.get("LABKIT_TORCHRUN") or shutil.which("torchrun")
    if torchrun:
        found["torchrun"] = (mine[0], {**os.environ, "LABKIT_TORCHRUN": torchrun})
    python = None if quick and not peers_are_there() else peers_python("ipyparallel is")
    if python is not None:
        # Engines are this Python's: they find TensorFlow where labkit's ranks find it.
        found_there = [path for path in sys.path if path.endswith("site-packages")]
        paths = os.pathsep.join([*found_there, str(PARTS)])
        found["ipyparallel"] = (python, {**os.environ, "PYTHONPATH": paths})
    for name, text in PEERS.items():
        if name not in found:
            print(f"{text} is not here: left out.", flush=True)
    return found


def launches(name: str, caller: tuple[Path, dict[str, str]], quick: bool) -> Launch:
    """A first program and later ones, started by a new process that runs already."""
    python, environment = caller
    with subprocess.Popen(
        [python, PARTS / "ways.py", name],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True, env={**environment, "TF_CPP_MIN_LOG_LEVEL": "3"}, start_new_session=True,
    ) as process:  # fmt: skip

        def call(text: str) -> str:
            assert process.stdin is not None
            assert process.stdout is not None
            if text:
                process.stdin.write(text)
                process.stdin.flush()
            answer = process.stdout.readline()
            if not answer:
                raise SystemExit(f"{name} ended by itself (code {process.wait(10)}).")
            return answer

        try:
            call("")
            cold = tuple(json.loads(call("go\n")))
            if quick and name not in KEEPING:
                warm = cold
            else:
                warm = _warm([_after_a_pause(call) for _ in range(WARM if name in KEEPING else 1)])
            process.stdin.close()  # type: ignore[union-attr]
            process.wait(30)
        finally:
            process.kill()
    return Launch(cold, warm)


def _after_a_pause(call: Callable[[str], str]) -> list[float]:
    time.sleep(PAUSE)
    found: list[float] = json.loads(call("go\n"))
    return found


def _warm(launches: list[list[float]]) -> tuple[float, float]:
    first, sums = zip(*launches, strict=True)
    return statistics.median(first), statistics.median(sums)


def results(quick: bool) -> list[Row]:
    found = launchers(quick)
    seen: dict[str, list[Launch]] = {name: [] for name in found}
    for number in range(1 if quick else ROUNDS):
        for name in random.sample(list(found), len(found)):
            launch = launches(name, found[name], quick)
            seen[name].append(launch)
            print(
                f"round {number + 1}: {PEERS.get(name, name):<22} first line and sum: "
                f"cold {launch.cold[0]:6.2f} and {launch.cold[1]:6.2f} s, "
                f"warm {launch.warm[0]:6.3f} and {launch.warm[1]:6.3f} s",
                flush=True,
            )
    rows = []
    for name, text in PEERS.items():
        if name in seen:
            for what in ("cold", "warm"):
                against = KEPT if (name, what) == ("ipyparallel", "warm") else text
                ours, theirs = ([getattr(one, what) for one in seen[who]] for who in (OURS, name))
                rows += [
                    _row(f"{until}, {what}", against, [one[number] for one in ours], peers)
                    for number, until in enumerate(("first line", "first sum"))
                    for peers in [[one[number] for one in theirs]]
                ]
    return rows


def _row(what: str, against: str, ours: list[float], theirs: list[float]) -> Row:
    """Ratios within rounds: their median, and the span of all (too few for a narrower interval)."""
    ratios = [peer / own for own, peer in zip(ours, theirs, strict=True)]
    return Row(what, against, statistics.median(ratios), min(ratios), max(ratios))


if __name__ == "__main__":
    sys.exit(main(results, __doc__))
