"""Ranks started by a real MPI: mpiexec starts them on this machine, their programs may use mpi4py.

>>> with labkit.cluster(ranks=4, engine="mpi") as c:          # doctest: +SKIP
...     c.run(program)                                         # MPI.COMM_WORLD has 4 ranks
"""

from __future__ import annotations

import ctypes.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from labkit.cluster import ports
from labkit.cluster.command_run import CommandRun
from labkit.cluster.engine import Event, Job, Places, Signal
from labkit.cluster.remote import Task
from labkit.cluster.starter import Command, Starter
from labkit.cluster.there import changes
from labkit.kinds import LabError

__all__ = ["MpiEngine"]


class MpiEngine:
    """The engine: one mpiexec for each run."""

    name = "mpi"

    def __init__(self, *, mpiexec: str | Path | None = None, network: str = "own") -> None:
        if network not in ("own", "shared"):
            raise LabError(
                f"network={network!r} is unknown. Choose 'own' (a private loopback, where the "
                "system has it) or 'shared' (this machine's, with its way to the internet)."
            )
        self._asked, self._network = mpiexec, network
        self._command: list[str] = []
        self._folder: Path | None = None
        self._starter: Starter | None = None
        self._run = CommandRun("mpiexec", _how_it_ended)
        self._ranks = 0

    def open(self, ranks: int, deadline: float) -> None:
        """Find mpiexec, and make the folder in which the ranks will talk."""
        from labkit.collectives.mpi.launch import mpiexec

        self._ranks = ranks
        self._command = [str(self._asked)] if self._asked else mpiexec()
        if shutil.which(self._command[0]) is None:
            raise LabError(
                f"There is no mpiexec at {self._command[0]}. Leave mpiexec= out to use the one "
                "that is found, or give the path of yours."
            )
        self._folder = Path(tempfile.mkdtemp(prefix="labkit-mpi-"))
        self._starter = Starter(self._folder, network=self._network, deadline=deadline)

    def places(self) -> Places:
        """Ports of the loopback: each rank holds its own from its start on."""
        if self._is_alone:
            chosen = tuple(range(ports.OWN, ports.OWN + self._ranks + 1))
        else:
            chosen = ports.choose(self._ranks + 1)
        addresses = tuple(f"{ports.HOST}:{port}" for port in chosen)
        return Places(addresses[:-1], addresses[-1])

    def start(self, job: Job) -> None:
        """Write the task down and start mpiexec."""
        from labkit.collectives.mpi.launch import environment as mpi_environment
        from labkit.collectives.mpi.gforker import command_for

        assert self._folder is not None
        assert self._starter is not None
        shut_in = {"LABKIT_NETWORK": "own"} if self._is_alone else {}
        there = tuple(changes({**environment, **shut_in}) for environment in job.environment)
        task = Task(job.program, job.ranks, there, job.addresses, job.deadline)
        command = [*command_for(self._command), "-n", str(job.ranks)]
        environment = {**mpi_environment(), **self._openmpi()}
        self._run.start(self._starter, self._folder, command, environment, task)

    def events(self, timeout: float) -> list[Event]:
        """What the ranks have written; and that mpiexec has ended, with what it said."""
        return self._run.events(timeout)

    def ask_stacks(self, ranks: Collection[int]) -> None:
        """Each rank's watcher asks it."""
        self._run.request("stacks", ranks)

    def signal(self, rank: int, what: Signal) -> None:
        """By the rank's watcher, its parent."""
        self._run.request(what, [rank])

    def stop(self) -> None:
        """The watchers end their ranks; mpiexec, which may take long to see it, is ended here."""
        self._run.stop(1.0, lambda mpiexec, _: _end(mpiexec))

    def close(self) -> None:
        """Remove the folder."""
        try:
            self.stop()
        finally:
            if self._starter is not None:
                self._starter.close()
                self._starter = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def describe(self) -> str:
        """Where the ranks run."""
        name = Path(self._command[0]).name if self._command else "mpiexec"
        if self._is_alone:
            return f"on this machine, started by {name}, in a network of their own"
        return f"on this machine, started by {name}, on its loopback"

    def _openmpi(self) -> dict[str, str]:
        """mpi4py loads the MPI of this environment; under another's mpiexec it needs that one's."""
        assert self._folder is not None
        beside = Path(self._command[0]).resolve().parent == Path(sys.executable).parent.resolve()
        if beside or "MPI4PY_LIBMPI" in os.environ or "open" not in self._version().lower():
            return {}
        return {
            "MPI4PY_LIBMPI": ctypes.util.find_library("mpi") or "libmpi.so.40",
            # What it leaves when it is killed goes with our own folder.
            "OMPI_MCA_orte_tmpdir_base": str(self._folder),
            "PRTE_MCA_prte_tmpdir_base": str(self._folder),
        }

    def _version(self) -> str:
        """What mpiexec says of itself, as "mpiexec (OpenRTE) 4.1.4"."""
        with suppress(OSError, subprocess.TimeoutExpired):
            return subprocess.run(
                [self._command[0], "--version"], capture_output=True, text=True, timeout=10
            ).stdout
        return ""

    @property
    def _is_alone(self) -> bool:
        return self._network == "own" and self._starter is not None and not self._starter.refused


def _end(mpiexec: Command) -> None:
    from labkit.collectives.mpi.gforker import clear

    mpiexec.end(0.1)
    if mpiexec.pid is not None:
        clear(mpiexec.pid)  # what its ranks shared, when they could not


def _how_it_ended(code: int, said: str) -> str:
    ending = f"mpiexec ended with code {code}."
    return f"{ending} It said: {said}" if said else ending
