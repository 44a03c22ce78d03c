"""Is this machine ready for class? Each check runs alone, with a deadline, and ends with a line.

$ labkit doctor
pass  Python        3.11.7

A check is a function in labkit.doctor_checks. It runs in a process of its own: a driver that hangs
or a library that crashes costs one line, not the report.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from typing import IO, Any, Literal

from labkit.kinds import LabError
from labkit.plain import dump, load, stored

__all__ = ["CHECKS", "Check", "Line", "examine", "main"]

Status = Literal["pass", "warn", "fail"]


@stored
@dataclass(frozen=True)
class Line:
    """What one check found, and what to do about it; `do` is empty when there is nothing to do."""

    check: str
    status: Status
    found: str
    do: str = ""

    def __str__(self) -> str:
        text = f"{self.status}  {self.check:<15}  {self.found}"
        return f"{text}\n      {'':<15}  do: {self.do}" if self.do else text


@dataclass(frozen=True)
class Check:
    """A question to the machine: a function "module:name" without arguments that gives a Line."""

    name: str
    function: str
    seconds: float = 20
    slow: bool = False


CHECKS = (
    Check("Python", "labkit.doctor_checks:python"),
    Check("GPU driver", "labkit.doctor_checks:driver", seconds=30),
    Check("TensorFlow", "labkit.doctor_checks:tensorflow", seconds=90, slow=True),
    Check("All-reduce", "labkit.doctor_checks:all_reduce", seconds=120, slow=True),
    Check("Memory", "labkit.doctor_checks:memory"),
    Check("Disk", "labkit.doctor_checks:disk"),
    Check("Data", "labkit.doctor_checks:data", seconds=30),
    Check("Ports", "labkit.doctor_checks:ports"),
    Check("Ranks", "labkit.doctor_checks:ranks", seconds=60),
    Check("MPI", "labkit.doctor_checks:mpi"),
    Check("Slurm", "labkit.doctor_checks:slurm", seconds=30),
    Check("Jupyter", "labkit.doctor_checks:jupyter"),
    Check("Kernel", "labkit.doctor_checks:kernel"),
    Check("Widgets", "labkit.doctor_checks:widgets"),
)


def main(*, as_json: bool = False, quick: bool = False, out: IO[str] | None = None) -> int:
    """Print a line for each check; 0 when nothing fails, 1 when something does."""
    out = out or sys.stdout
    chosen = [check for check in CHECKS if not (quick and check.slow)]
    lines = []
    with closing(examine(chosen)) as answers:
        for line in answers:
            lines.append(line)
            if not as_json:
                print(line, file=out, flush=True)
    failed = any(line.status == "fail" for line in lines)
    if as_json:
        print(json.dumps([asdict(line) for line in lines], indent=1, ensure_ascii=False), file=out)
    else:
        print(_summary(lines), file=out)
    return 1 if failed else 0


def examine(checks: Sequence[Check]) -> Generator[Line, None, None]:
    """Run the checks, two at a time, and give their lines in order."""
    running = _Running()
    pool = ThreadPoolExecutor(max_workers=2)
    try:
        answers = [pool.submit(_ask, check, running) for check in checks]
        for answer in answers:
            yield answer.result()
    finally:
        # Also when the reader presses Ctrl-C: what still runs is ended, what waits never starts.
        running.end_all()
        pool.shutdown(wait=True, cancel_futures=True)


class _Running:
    """The processes of the checks, so that Ctrl-C can end each of them, and only them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._over = False
        self._processes: set[subprocess.Popen[str]] = set()

    def start(self, command: list[str]) -> subprocess.Popen[str] | None:
        with self._lock:
            if self._over:
                return None
            # A session of its own: ending it also ends what the check has started.
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
            self._processes.add(process)
            return process

    def end(self, process: subprocess.Popen[str]) -> None:
        # Until wait() the number stays the process's own, so no stranger can be hit.
        with self._lock:
            _kill_session(process.pid)
            process.wait()
            self._processes.discard(process)

    def end_all(self) -> None:
        with self._lock:
            self._over = True
            for process in self._processes:
                _kill_session(process.pid)


def _kill_session(number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(number, signal.SIGKILL)


def _ask(check: Check, running: _Running) -> Line:
    program = f"from labkit.doctor import answer; answer({check.name!r}, {check.function!r})"
    process = running.start([sys.executable, "-P", "-c", program])
    if process is None:
        return Line(check.name, "fail", "was not run", _AGAIN)
    answered, complained = _Reader(process.stdout), _Reader(process.stderr)
    in_time = answered.done.wait(check.seconds)
    running.end(process)
    complained.done.wait(5)
    if process.stdin is not None:
        process.stdin.close()
    if answered.line is not None:
        return answered.line
    if not in_time:
        return Line(check.name, "fail", f"gave no answer within {check.seconds:g} s", _AGAIN)
    last = (complained.text.strip().splitlines() or ["without a word"])[-1]
    code = process.returncode
    ending = f"ended by signal {-code}" if code < 0 else f"ended with code {code}"
    return Line(check.name, "fail", f"{ending}: {last[:300]}", _RENEW)


class _Reader:
    """Reads a pipe in the background, to its end or to the check's line."""

    def __init__(self, stream: IO[str] | None) -> None:
        self.text = ""
        self.line: Line | None = None
        self.done = threading.Event()
        threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def _read(self, stream: IO[str] | None) -> None:
        for text in stream or ():
            if text.startswith(_MARK):
                self.line = load(text.removeprefix(_MARK))
                break
            self.text = (self.text + text)[-10_000:]
        self.done.set()


_AGAIN = "Run `labkit doctor` again when this machine is less busy."
_RENEW = "Run `make clean`, then `make lab`, then `labkit doctor` again."
_MARK = "labkit-doctor-line "


def answer(name: str, function: str) -> None:
    """In the check's own process: run it and write its line."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        module, _, attribute = function.partition(":")
        check: Callable[[], Any] = getattr(importlib.import_module(module), attribute)
        line = check()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except LabError as fault:
        line = Line(name, "fail", str(fault), "Do what it says, then run `labkit doctor` again.")
    except BaseException as fault:  # noqa: BLE001
        # Whatever happens in a check is a finding about this machine, not a crash of doctor.
        reason = " ".join(str(fault).split()) or "no reason given"
        found = f"the check itself failed: {type(fault).__name__}: {reason[:300]}"
        line = Line(name, "fail", found, _RENEW)
    text = dump(Line(name, line.status, line.found, line.do)).replace("\n", "")
    sys.stdout.write(f"\n{_MARK}{text}\n")
    sys.stdout.flush()
    # Threads of a broken library must not keep a finished check alive.
    os._exit(0)


def _end_with_parent() -> None:
    # The parent never writes: the end of this pipe means that it is gone.
    with suppress(OSError, ValueError):
        os.read(0, 1)
    with suppress(OSError):
        os.killpg(os.getpgid(0), signal.SIGKILL)


def _summary(lines: Sequence[Line]) -> str:
    counts = {status: sum(line.status == status for line in lines) for status in _WORDS}
    told = ", ".join(f"{count} {_WORDS[status]}" for status, count in counts.items() if count)
    verdict = "Not ready: mend what fails." if counts["fail"] else "Ready for class."
    return f"{verdict} {told}."


_WORDS: dict[str, str] = {"pass": "passed", "warn": "to look at", "fail": "failed"}
