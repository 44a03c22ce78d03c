"""Start measuring processes, listen to them, and leave none behind."""

from __future__ import annotations

import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import IO, Any

from labkit.collectives.bench.speaking import heard
from labkit.collectives.mpi import stop
from labkit.kinds import LabError

__all__ = ["converse"]

FAREWELL = 10.0  # seconds to end after the result has been told


def converse(
    who: str,
    commands: Sequence[Sequence[str]],
    environments: Sequence[dict[str, str]],
    deadline: float,
    advance: Callable[[float], object],
) -> dict[str, Any]:
    """Run the commands together until one of them tells a result."""
    until = time.monotonic() + deadline
    lines: queue.Queue[str | None] = queue.Queue()
    with ExitStack() as stack:
        errors = stack.enter_context(tempfile.TemporaryFile("w+", errors="replace"))
        started = [
            stack.enter_context(_started(command, environment, errors, lines))
            for command, environment in zip(commands, environments, strict=True)
        ]
        result = _listen(who, lines, len(started), until, deadline, advance)
        if result is None:
            errors.seek(0)
            said = errors.read().strip()[-800:] or "nothing"
            raise LabError(
                f"{who} ended without a result. It said: {said}\n"
                f"Leave it out with contenders=[…], or look into that."
            )
        for process in started:
            _farewell(process)
    return result


@contextmanager
def _started(
    command: Sequence[str], environment: dict[str, str], errors: IO[str], lines: Any
) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        list(command), env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=errors, text=True, errors="replace", start_new_session=True,
    )  # fmt: skip

    def listen() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=listen, daemon=True).start()
    try:
        yield process
    finally:
        stop(process)


def _listen(
    who: str, lines: Any, running: int, until: float, deadline: float, advance: Any
) -> dict[str, Any] | None:
    while running:
        try:
            line = lines.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            raise LabError(
                f"{who} had not finished after {deadline:g} s, and was stopped. A program that "
                "waits for ever? collectives.run says who waits for whom. Else give fewer or "
                "smaller sizes=, fewer contenders=, or a longer deadline=."
            ) from None
        if line is None:
            running -= 1
            continue
        said = heard(line) or {}
        if "progress" in said:
            advance(float(said["progress"]))
        if "fault" in said:
            raise LabError(f"{who}: {said['fault']}. Try it with collectives.run first.")
        if "result" in said:
            return dict(said["result"])
    return None


def _farewell(process: subprocess.Popen[str]) -> None:
    try:
        process.wait(FAREWELL)
    except subprocess.TimeoutExpired:
        stop(process)
