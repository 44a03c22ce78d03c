"""What each fix of the planted cases gains, measured: the program against its fixed copy.

Each round runs both in the order ABBA, as their users start them, each in a folder of its own.
The gain is the ratio of the seconds of a step, from the tenth to the last, by the marks of a run
that is not watched and leaves nothing out. The interval comes from the rounds' log ratios. The
whole takes an hour or more and wants a quiet machine:

    python benchmarks/explain_cases/truth.py --rounds 4 [case ...]
    python benchmarks/explain_cases/truth.py --check        each once, with few steps

`--check` looks for exit code 0 and for the same last loss where the fix must not change it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from labkit.explain.runs import Runs
from labkit.explain.seen import KINDS
from labkit.timing.intervals import shift

HERE = Path(__file__).resolve().parent
TORCH = HERE.parents[1] / "environments/torch/.venv/bin/python"
ANSWERS: dict[str, dict[str, Any]] = json.loads((HERE / "answers.json").read_text("utf-8"))
SECONDS = 600


def copies(name: str, folder: Path) -> list[Path]:
    """The program, and its fixed copy if the case has one, each in a folder of its own."""
    made = []
    fix = HERE / f"{name}.fix.diff"
    for part in ("program", "fixed")[: 1 + fix.exists()]:
        place = folder / part
        place.mkdir()
        for file in HERE.glob(f"{name}.*"):
            (place / file.name).write_bytes(file.read_bytes())
        if part == "fixed":
            subprocess.run(["git", "apply", "-p1", fix], cwd=place, env=no_git(), check=True)
        made.append(place / f"{name}.py")
    return made


def no_git() -> dict[str, str]:
    """An environment in which git takes the folder for what it is, no part of a repository."""
    return {**os.environ, "GIT_CEILING_DIRECTORIES": tempfile.gettempdir()}


def command(name: str) -> list[str]:
    """How its user starts a case: the Python, and torchrun where it has ranks."""
    answer = ANSWERS[name]
    words = [sys.executable if answer["env"] == "tf" else os.fspath(TORCH)]
    if answer["launch"] != "python":
        words += ["-m", "torch.distributed.run", "--standalone", *answer["launch"].split()[1:]]
    return words


def quiet() -> dict[str, str]:
    """The environment of all runs."""
    return {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"}


def run(name: str, script: Path, extra: str = "") -> tuple[float, str]:
    """Seconds that the program takes, and what it prints."""
    begin = time.perf_counter()
    started = subprocess.Popen(
        [*command(name), script.name, *extra.split()],
        cwd=script.parent,
        env=quiet(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        text, errors = started.communicate(timeout=SECONDS)
    except BaseException:
        started.terminate()  # torchrun ends its ranks, which have sessions of their own
        with contextlib.suppress(subprocess.TimeoutExpired):
            started.wait(60)
        started.kill()
        raise
    seconds = time.perf_counter() - begin
    if started.returncode:
        raise SystemExit(f"{script} ended with {started.returncode}:\n{errors[-3000:]}")
    return seconds, text


def last_number(text: str) -> float:
    return float(re.findall(r"-?\d+\.\d+", text)[-1])


def check(name: str, scripts: list[Path]) -> str:
    runs = [run(name, script, ANSWERS[name]["quick"]) for script in scripts]
    losses = [last_number(text) for _, text in runs if ANSWERS[name].get("same") == "loss"]
    if losses and not math.isclose(*losses, rel_tol=0.01):
        raise SystemExit(f"{name}: the fix changes the loss from {losses[0]} to {losses[1]}")
    return " ".join(f"{seconds:.1f} s" for seconds, _ in runs) + "".join(f" {x}" for x in losses)


def step_seconds(name: str, script: Path) -> float:
    """Seconds of a step, from the tenth to the last, in a run that is not watched."""
    runs = Runs([*command(name), script.name], script.parent)
    try:
        runs._copy()
        for kind in KINDS:
            config = {"kind": kind, "stop": 10**9, "warm": 10}
            ranks = runs.shorter(config, {}, quiet(), SECONDS).reports
            marks = [one["marks"].get(kind, []) for one in ranks if not one["worker"]]
            if marks and min(map(len, marks)) > 12:
                return float((marks[0][-1] - marks[0][9]) / (len(marks[0]) - 10))
    finally:
        runs.close()
    raise SystemExit(f"{script}: no steps were seen")


def measure(name: str, scripts: list[Path], rounds: int) -> dict[str, Any]:
    logs, walls = [], []
    for _ in range(rounds):
        a1, b1, b2, a2 = (step_seconds(name, scripts[i]) for i in (0, 1, 1, 0))
        logs.append(math.log((a1 + a2) / (b1 + b2)))
        walls += [a1, a2]
    found = shift(logs, 0.95)
    return {
        "step": round(sum(walls) / len(walls), 5),
        "gain": [round(math.exp(x), 3) for x in (found.value, found.low, found.high)],
        "confidence": found.confidence,
        "rounds": rounds,
        "recorded": f"{datetime.now(UTC):%Y-%m-%d}, {platform.machine()}, {os.cpu_count()} cores",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="each once, with few steps")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("names", nargs="*", help="cases; all if none is named")
    options = parser.parse_args()
    written = HERE / "truth.json"
    known = json.loads(written.read_text("utf-8")) if written.exists() else {}
    for name in options.names or ANSWERS:
        with tempfile.TemporaryDirectory() as folder:
            scripts = copies(name, Path(folder))
            if options.check:
                print(name, check(name, scripts), flush=True)
            elif ANSWERS[name]["kind"] == "planted":
                known[name] = measure(name, scripts, options.rounds)
                written.write_text(json.dumps(known, indent=2) + "\n", "utf-8")
                print(name, known[name]["gain"], flush=True)


if __name__ == "__main__":
    main()
