"""`labkit doctor`: is this machine ready for class?

$ labkit doctor
pass  Python           3.11.7

A check is a function in labkit.doctor_checks that returns a Line. Each runs in a process of its
own and for a limited time: a driver that hangs or a library that crashes costs one line only.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import IO, Literal

from labkit.kinds import LabError

__all__ = ["CHECKS", "Check", "Line", "answer", "examine", "main"]


@dataclass(frozen=True)
class Line:
    """What one check found, and what to do about it; `do` is empty when there is nothing to do."""

    status: Literal["pass", "warn", "fail"]
    found: str
    do: str = ""
    check: str = ""

    def __str__(self) -> str:
        text = f"{self.status}  {self.check:<15}  {self.found}"
        return f"{text}\n      {'':<15}  do: {self.do}" if self.do else text


@dataclass(frozen=True)
class Check:
    """The function "module:name", which takes no arguments and returns a Line."""

    name: str
    function: str
    seconds: float = 30
    slow: bool = False


CHECKS = (
    Check("Python", "labkit.doctor_checks:python"),
    Check("GPU driver", "labkit.doctor_checks:driver"),
    Check("TensorFlow", "labkit.doctor_checks:tensorflow", seconds=120, slow=True),
    Check("Memory", "labkit.doctor_checks:memory"),
    Check("Disk", "labkit.doctor_checks:disk"),
    Check("Data", "labkit.doctor_checks:data"),
    Check("Loopback", "labkit.doctor_checks:loopback"),
    Check("Ranks", "labkit.doctor_checks:ranks", seconds=60),
    Check("MPI", "labkit.doctor_checks:mpi"),
    Check("Slurm", "labkit.doctor_checks:slurm"),
    Check("Jupyter", "labkit.doctor_checks:jupyter"),
)
_AGAIN = "Run `labkit doctor` again when this machine is less busy."
_RENEW = "Run `make clean`, then `make lab`, then `labkit doctor` again."
_MARK = "labkit-doctor-line "


def main(*, as_json: bool = False, quick: bool = False, out: IO[str] | None = None) -> int:
    """Print a line for each check; 0 when nothing fails, 1 when something does."""
    out = out or sys.stdout
    lines = []
    for line in examine([check for check in CHECKS if not (quick and check.slow)]):
        lines.append(line)
        if not as_json:
            print(line, file=out, flush=True)
    counts: Counter[str] = Counter(line.status for line in lines)
    if as_json:
        print(json.dumps([asdict(line) for line in lines], indent=1, ensure_ascii=False), file=out)
    else:
        verdict = "Not ready: fix what fails." if counts["fail"] else "Ready for class."
        words = {"pass": "passed", "warn": "with a warning", "fail": "failed"}
        told = ", ".join(f"{counts[key]} {word}" for key, word in words.items() if counts[key])
        print(f"{verdict} {told}.", file=out)
    return 1 if counts["fail"] else 0


def examine(checks: Sequence[Check]) -> Iterator[Line]:
    """Run the checks, one after the other."""
    for check in checks:
        yield replace(_run(check), check=check.name)


def _run(check: Check) -> Line:
    program = f"from labkit.doctor import answer; answer({check.function!r})"
    # A file and not a pipe: what the check has started may keep a pipe open after its end.
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", program],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        try:
            code = process.wait(check.seconds)
        except subprocess.TimeoutExpired:
            return Line("fail", f"gave no answer within {check.seconds:g} s", _AGAIN)
        finally:  # also after Ctrl-C: end the check and all that it has started
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        lines = output.read().splitlines()
    for text in lines:
        if text.startswith(_MARK):
            return Line(**json.loads(text.removeprefix(_MARK)))
    ending = f"ended by signal {-code}" if code < 0 else f"ended with code {code}"
    return Line("fail", f"{ending}: {lines[-1][:300] if lines else 'no message'}", _RENEW)


def answer(function: str) -> None:
    """In the check's own process: run it and print its line."""
    try:
        module, _, name = function.partition(":")
        line = getattr(importlib.import_module(module), name)()
    except LabError as fault:
        line = Line("fail", str(fault), "Do what it says, then run `labkit doctor` again.")
    except BaseException as fault:  # noqa: BLE001 (whatever it is, doctor reports it)
        reason = " ".join(str(fault).split()) or "no reason given"
        line = Line("fail", f"{type(fault).__name__}: {reason[:300]}", _RENEW)
    print(f"\n{_MARK}{json.dumps(asdict(line))}", flush=True)
    os._exit(0)  # threads of a broken library must not keep a finished check alive
