"""How measuring processes report: lines of JSON on their standard output, collected here.

Libraries print there too: a message starts with a mark.
"""

from __future__ import annotations

import json
import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import IO, Any

from labkit.collectives.mpi.launch import stop
from labkit.kinds import LabError

__all__ = ["collect", "report"]

MARK = "@labkit-bench "
EXIT = 10.0  # seconds that a process may take to end after its result

Lines = queue.Queue[str | None]


def report(what: str, value: Any) -> None:
    """One line to the process that has started this one."""
    print(MARK + json.dumps({what: value}), flush=True)


def collect(
    names: str,
    commands: Sequence[Sequence[str]],
    environments: Sequence[dict[str, str]],
    deadline: float,
    advance: Callable[[float], object],
) -> dict[str, Any]:
    """Run the commands together until one of them reports a result; no process is left behind."""
    until = time.monotonic() + deadline
    lines: Lines = queue.Queue()
    with ExitStack() as stack:
        errors = stack.enter_context(tempfile.TemporaryFile("w+", errors="replace"))
        processes = [
            stack.enter_context(_started(command, environment, errors, lines))
            for command, environment in zip(commands, environments, strict=True)
        ]
        running = len(processes)
        while running:
            try:
                line = lines.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                raise LabError(
                    f"{names} had not finished after {deadline:g} s, and was stopped. For a "
                    "program that waits for ever, collectives.run shows which rank waits for "
                    "which. Else give fewer or smaller sizes=, or a longer deadline=."
                ) from None
            running -= line is None
            message = _parsed(line or "")
            if "progress" in message:
                advance(float(message["progress"]))
            if "fault" in message:
                raise LabError(f"{names}: {message['fault']}. Try it with collectives.run first.")
            if "result" in message:
                for process in processes:
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(EXIT)
                return dict(message["result"])
        errors.seek(0)
        output = errors.read().strip()[-800:] or "nothing"
    raise LabError(f"{names} ended without a result. Standard error: {output}")


@contextmanager
def _started(
    command: Sequence[str], environment: dict[str, str], errors: IO[str], lines: Lines
) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        list(command), env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=errors, text=True, errors="replace", start_new_session=True,
    )  # fmt: skip

    def read() -> None:
        for line in process.stdout or ():
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    try:
        yield process
    finally:
        stop(process)


def _parsed(line: str) -> dict[str, Any]:
    """The message in a line; empty for lines of libraries."""
    _, mark, text = line.partition(MARK)
    with suppress(ValueError):
        return dict(json.loads(text)) if mark else {}
    return {}
