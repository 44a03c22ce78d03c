"""One rank under any launcher: python -m labkit.cluster.remote FOLDER, by mpiexec, srun or others.

It is two processes. The outer one, which the launcher knows, does nothing but watch: it obeys
requests from the folder, says how the inner one ended, and ends it when nobody waits for it any
more. The inner one is the rank: whatever its program does to it, somebody is left to tell of it.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import pickle
import signal
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from labkit.cluster.folder import RunFolder
from labkit.cluster.watcher import LOOK, Watcher, log_of
from labkit.kinds import LabError

__all__ = ["Task", "main", "number_of_this_rank", "share_gpus"]

THREADS = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
# How launchers number their ranks. Inside a Slurm job, mpiexec's own number counts.
NUMBERS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID", "RANK")
PDEATHSIG, SUBREAPER = 1, 36  # of Linux's prctl


@dataclass(frozen=True)
class Task:
    """What is written into the folder for all ranks."""

    program: bytes
    ranks: int
    environment: tuple[Mapping[str, str | None], ...]
    """What to change in each rank's environment; None takes a name away."""
    addresses: tuple[str, ...]
    deadline: float
    share_gpus: bool = False
    """Deal out the GPUs that a rank sees among the ranks of its machine."""


def number_of_this_rank(environ: Mapping[str, str]) -> int:
    """Which rank the launcher has made of this process."""
    for name in NUMBERS:
        if environ.get(name, "").isdigit():
            return int(environ[name])
    raise LabError(
        f"None of {', '.join(NUMBERS)} is set: this process was not started as a rank. "
        "Start it with srun, mpiexec or torchrun."
    )


def main() -> None:
    """Become one rank and its watcher."""
    folder = RunFolder.of_this_rank(sys.argv[1])
    rank = number_of_this_rank(os.environ)
    task = pickle.loads(folder.read("job"))  # noqa: S301 (signed, by the one who started us)
    if rank >= task.ranks:
        return
    _prctl(SUBREAPER, 1)
    watcher = os.getpid()
    pid = os.fork()
    if pid == 0:
        _be_rank(folder, rank, task, watcher)
    sys.exit(Watcher(folder, rank, pid, task.deadline).watch())


def _be_rank(folder: RunFolder, rank: int, task: Task, watcher: int) -> NoReturn:
    """The inner process: say ready, wait for the others, run the program, stay until the end."""
    code = 1
    try:
        _prctl(PDEATHSIG, signal.SIGKILL)
        if os.getppid() != watcher:
            os._exit(1)
        _write_to(folder.path, rank)
        _change_environment(task, rank)
        from labkit.cluster import ports
        from labkit.cluster.rank import run_program

        held = ports.hold(task.addresses[rank]) if task.addresses else None
        about = {
            "pid": os.getpid(),
            "host": os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
            "step": os.environ.get("SLURM_STEP_ID", ""),
        }
        folder.write(f"ready{rank}", json.dumps(about).encode())
        _wait_for(folder, "go")
        how, payload = run_program(task.program, rank)
        _flush()
        folder.write(f"{how}{rank}", payload)
        code = 0 if how == "returned" else 1
        if how == "returned":
            _wait_for(folder, "over")
            _leave_mpi()
        del held
    except BaseException:  # noqa: BLE001 (nothing above this could tell of it)
        import traceback

        traceback.print_exc()
    _flush()
    os._exit(code)


def _write_to(folder: Path, rank: int) -> None:
    """From now on stdout and stderr are files of the folder, for C++ too."""
    _flush()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    for name, number in (("out", 1), ("err", 2)):
        os.dup2(log_of(folder, name, rank), number)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(  # type: ignore[union-attr]
            encoding="utf-8", errors="backslashreplace", line_buffering=True
        )
    stack = log_of(folder, "stack", rank)
    faulthandler.enable(stack)
    faulthandler.register(signal.SIGUSR1, stack, all_threads=True)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _change_environment(task: Task, rank: int) -> None:
    for name, value in task.environment[rank].items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    if task.share_gpus:
        share_gpus()
    cores = os.environ.get("SLURM_CPUS_PER_TASK")
    for name in THREADS if cores else ():
        os.environ.setdefault(name, str(cores))


def share_gpus() -> None:
    """Of the GPUs of this node that the job has, this rank sees its own."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if visible:
        devices = visible.split(",")
        here, together = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
        mine = devices[here::together] or [devices[here % len(devices)]]
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(mine)


def _wait_for(folder: RunFolder, name: str) -> None:
    """The watcher ends us if it never comes."""
    while name not in folder.names():
        time.sleep(LOOK)
    folder.read(name)


def _leave_mpi() -> None:
    """MPI keeps shared memory and folders of its own until all have taken their leave."""
    mpi: Any = sys.modules.get("mpi4py.MPI")
    if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized():
        mpi.Finalize()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()


def _prctl(option: int, value: int) -> None:
    """Linux's word for it; elsewhere the watcher does without."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main()
