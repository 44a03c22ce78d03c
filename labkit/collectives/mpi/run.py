"""Run a program under a real MPI: N processes on this machine, started by mpiexec.

>>> run_mpi(programs.ring_all_reduce, ranks=2)      # doctest: +SKIP
[array([4., 6.]), array([4., 6.])]
"""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from labkit.arguments import number
from labkit.collectives.mpi.gforker import command_for
from labkit.collectives.mpi.launch import environment, memory_advice, mpiexec, stop
from labkit.collectives.records import Array, counted
from labkit.collectives.trace import check_program, make_buffers
from labkit.kinds import LabError
from labkit.shipping import pack, pack_program

__all__ = ["run_mpi"]

MOST_RANKS = 64  # processes on one machine
START = 60.0  # seconds that mpiexec may take to start the ranks
LONGEST = 1e6  # seconds: clocks do not go much further
REPORT = 2.0  # seconds that the other ranks have to say where they are, after the first did


def run_mpi(
    program: Callable[..., Any],
    inputs: Sequence[Any] | None = None,
    *,
    ranks: int | None = None,
    deadline: float = 60.0,
    **options: Any,
) -> list[Array]:
    """What `run` does, in a process per rank: the buffers that `program(comm, buffer)` leaves.

    `comm` is mpi4py's COMM_WORLD. Programs that wait for ever are stopped after `deadline` seconds.
    """
    check_program(program, options)
    deadline = min(number("deadline", deadline, above=0), LONGEST)
    buffers = make_buffers(inputs, ranks, MOST_RANKS)
    for name, value in options.items():
        pack(value, f"{name}={value!r}")
    content = pack_program(program, (options,))
    command = [*command_for(mpiexec()), "-n", str(len(buffers))]
    with tempfile.TemporaryDirectory(prefix="labkit-mpi-") as name:
        folder = Path(name)
        (folder / "program").write_bytes(content)
        (folder / "deadline").write_text(str(deadline))
        for rank, buffer in enumerate(buffers):
            (folder / f"input{rank}").write_bytes(pickle.dumps(buffer))
        command += [sys.executable, "-m", "labkit.collectives.mpi.rank", name, str(os.getpid())]
        output = _run(command, folder, len(buffers), deadline)
        _raise_faults(folder, len(buffers), deadline)
        if not _are_done(folder, len(buffers)):
            raise LabError(
                "mpiexec ended without a result from every rank."
                f"{memory_advice(len(buffers))} Its output: {output.strip()[-600:] or 'none'}"
            )
        print(output, end="")
        done = [(folder / f"output{rank}").read_bytes() for rank in range(len(buffers))]
        return [pickle.loads(content) for content in done]  # noqa: S301 (our own)


def _run(command: list[str], folder: Path, ranks: int, deadline: float) -> str:
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment(),
            start_new_session=True,
        )
        try:
            _wait(process, folder, ranks, deadline)
            return log.read_text(encoding="utf-8", errors="replace")
        finally:
            stop(process)


def _wait(process: subprocess.Popen[Any], folder: Path, ranks: int, deadline: float) -> None:
    """Until all ranks are done, or have said where they were at the deadline.

    Their results are enough: mpiexec itself may take seconds more to see that they have ended.
    """
    until = time.monotonic() + deadline + START
    reporting = False
    while time.monotonic() < until:
        try:
            process.wait(0.02)
            return
        except subprocess.TimeoutExpired:
            reports = [rank for rank in range(ranks) if _report(folder, rank)]
            if len(reports) == ranks or _are_done(folder, ranks):
                return
            if reports and not reporting:
                reporting = True
                until = time.monotonic() + REPORT
    if not reporting:
        raise LabError(
            f"mpiexec had not started {counted(ranks, 'rank')} after {deadline + START:g} s."
            f"{memory_advice(ranks)} Check that it works: {mpiexec()[0]} -n 2 hostname."
        )


def _are_done(folder: Path, ranks: int) -> bool:
    return all((folder / f"output{rank}").exists() for rank in range(ranks))


def _raise_faults(folder: Path, ranks: int, deadline: float) -> None:
    for rank in range(ranks):
        fault = folder / f"fault{rank}"
        if fault.exists():
            raise LabError(json.loads(fault.read_text(encoding="utf-8")))
    reports = {rank: _report(folder, rank) for rank in range(ranks)}
    places = [f"rank {rank} was in {place}" for rank, place in reports.items() if place]
    if places:
        raise LabError(
            f"The program had not ended after {deadline:g} s under MPI: {', '.join(places)}. "
            "collectives.run with the same program names the ranks that wait for each other; a "
            "long program needs more time with deadline=."
        )


def _report(folder: Path, rank: int) -> str:
    """Where the rank was at the deadline: the innermost line outside MPI and labkit's own."""
    report = folder / f"report{rank}"
    text = report.read_text(encoding="utf-8") if report.exists() else ""
    frames = re.findall(r'File "(.*)", line (\d+) in (\S+)', text)
    for file, line, function in frames:
        if Path(file).name not in ("exit_with_parent.py", "rank.py", "shipping.py", "threading.py"):
            return f"line {line} of {function}"
    return "the start of the program" if frames else ""
