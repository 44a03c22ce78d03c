"""Run a program under a real MPI: N processes on this machine, started by mpiexec.

>>> run_mpi(programs.ring_all_reduce, ranks=2)      # doctest: +SKIP
[array([4., 6.]), array([4., 6.])]
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from labkit.collectives.mpi_start import clear, starting
from labkit.collectives.running import buffers_for, explain_deadline, explain_program
from labkit.collectives.shipping import pack, pack_options
from labkit.kinds import LabError

__all__ = ["mpi_environment", "mpiexec", "run_mpi", "stop"]

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
) -> list[np.ndarray]:
    """What `run` does, in a process per rank: the buffers that `program(comm, buffer)` leaves.

    `comm` is mpi4py's COMM_WORLD. Programs that wait for ever are stopped after `deadline` seconds.
    """
    explain_program(program, options)
    explain_deadline(deadline)
    deadline = min(deadline, LONGEST)
    buffers = buffers_for(inputs, ranks)
    command = [*starting(mpiexec()), "-n", str(len(buffers))]
    with tempfile.TemporaryDirectory(prefix="labkit-mpi-") as name:
        folder = Path(name)
        (folder / "program").write_bytes(pack(program))
        (folder / "options").write_bytes(pack_options(options, deadline))
        for rank, buffer in enumerate(buffers):
            (folder / f"input{rank}").write_bytes(pickle.dumps(buffer))
        command += [sys.executable, "-m", "labkit.collectives.mpi_rank", name, str(os.getpid())]
        said = _run(command, folder, len(buffers), deadline)
        _raise_faults(folder, len(buffers), deadline)
        outputs = [folder / f"output{rank}" for rank in range(len(buffers))]
        if not _are_done(folder, len(buffers)):
            raise LabError(
                "mpiexec ended without a result from every rank. It said: "
                f"{said.strip()[-600:] or 'nothing'}"
            )
        print(said, end="")
        return [pickle.loads(output.read_bytes()) for output in outputs]  # noqa: S301 (our own)


def mpiexec() -> list[str]:
    """The command that starts ranks: this environment's own before the machine's.

    `mpi_start.starting` makes of it the words to start it with.
    """
    if importlib.util.find_spec("mpi4py") is None:
        raise LabError(
            "mpi4py is not installed here. In the folder of the course: make lab; elsewhere: "
            "pip install mpi4py mpich. Everything else of the collectives works without."
        )
    beside = [Path(sys.executable).with_name(name) for name in ("mpiexec.gforker", "mpiexec")]
    # gforker, which MPICH has for ranks on one machine, talks to them through pipes; others
    # listen for them on every network that the machine is in.
    found = next((str(path) for path in beside if path.exists()), shutil.which("mpiexec"))
    if found is None:
        raise LabError(
            "There is no mpiexec on this machine. In the folder of the course: make lab; "
            "elsewhere: pip install mpich, or apt install openmpi-bin."
        )
    return [found]


def mpi_environment() -> dict[str, str]:
    """What mpiexec needs to know: this Python's paths, and that all ranks are on this machine."""
    paths = [str(Path(path).absolute()) for path in sys.path if path]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys([*paths, str(Path.cwd())])),
        # Ranks, too, would listen on every network, though they talk through shared memory.
        "UCX_NET_DEVICES": "lo",
        "FI_TCP_IFACE": "lo",
        "HYDRA_IFACE": "lo",
        "HYDRA_LAUNCHER": "fork",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        "OMPI_MCA_btl": "self,tcp",
        "OMPI_MCA_btl_tcp_if_include": "lo",
        "OMPI_MCA_pml": "ob1",
    }


def stop(process: subprocess.Popen[Any]) -> None:
    """End mpiexec and its ranks: asked first, as it then takes them along, and by force after.

    What ranks shared that could not take their leave is given back.
    """
    for way, patience in ((signal.SIGTERM, 0.3), (signal.SIGKILL, 5.0)):
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(process.pid, way)
                process.wait(patience)
    clear(process.pid)


def _run(command: list[str], folder: Path, ranks: int, deadline: float) -> str:
    log = folder / "said"
    with log.open("wb") as said:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            env=mpi_environment(),
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
            f"mpiexec had not started the {ranks} ranks after {deadline + START:g} s. Look whether "
            f"{mpiexec()[0]} works: mpiexec -n 2 hostname."
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
            "collectives.run with the same program says who waits for whom; a long program "
            "needs more time with deadline=."
        )


def _report(folder: Path, rank: int) -> str:
    """Where the rank was at the deadline: the innermost line outside MPI and labkit's own."""
    report = folder / f"report{rank}"
    text = report.read_text(encoding="utf-8") if report.exists() else ""
    frames = re.findall(r'File "(.*)", line (\d+) in (\S+)', text)
    for file, line, function in frames:
        if Path(file).name not in ("askers.py", "mpi_rank.py", "shipping.py", "threading.py"):
            return f"line {line} of {function}"
    return "the start of the program" if frames else ""
