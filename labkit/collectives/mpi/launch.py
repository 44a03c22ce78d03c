"""How ranks are started and stopped: which mpiexec, in which environment."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from labkit.collectives.mpi.gforker import clear
from labkit.kinds import LabError, bytes_text

__all__ = ["environment", "memory_advice", "mpiexec", "stop"]

SHARED = Path("/dev/shm")  # noqa: S108 (where MPI's ranks share memory, not ours to choose)
PER_RANK = 600_000  # bytes of it that MPICH takes for each rank (measured: 530,000)


def mpiexec() -> list[str]:
    """The command that starts ranks: this environment's own before the machine's.

    `gforker.command_for` makes of it the command to start it with.
    """
    if importlib.util.find_spec("mpi4py") is None:
        raise LabError(
            "mpi4py is not installed here. In the folder of the course: make lab; elsewhere: "
            "pip install mpi4py mpich. Everything else of the collectives works without."
        )
    beside = [Path(sys.executable).with_name(name) for name in ("mpiexec.gforker", "mpiexec")]
    # gforker, which MPICH has for ranks on one machine, uses pipes; other launchers listen for
    # their ranks on every network that the machine is in.
    found = next((str(path) for path in beside if path.exists()), shutil.which("mpiexec"))
    if found is None:
        raise LabError(
            "There is no mpiexec on this machine. In the folder of the course: make lab; "
            "elsewhere: pip install mpich, or apt install openmpi-bin."
        )
    return [found]


def environment() -> dict[str, str]:
    """What mpiexec needs to know: this Python's paths, and that all ranks are on this machine."""
    paths = [str(Path(path).absolute()) for path in sys.path if path]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys([*paths, str(Path.cwd())])),
        # Ranks, too, would listen on every network, though they use shared memory.
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
    """End mpiexec and its ranks: with a request first, as it then takes them along, then by force.

    The shared memory of ranks that could not finalize is removed.
    """
    for number, timeout in ((signal.SIGTERM, 0.3), (signal.SIGKILL, 5.0)):
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(process.pid, number)
                process.wait(timeout)
    clear(process.pid)


def memory_advice(ranks: int) -> str:
    """A sentence if there is too little shared memory for so many ranks, else nothing."""
    try:
        there = shutil.disk_usage(SHARED).free
    except OSError:
        return ""
    needed = ranks * PER_RANK
    if there >= needed:
        return ""
    return (
        f" {SHARED} has {bytes_text(there)} left, and {ranks} ranks share about "
        f"{bytes_text(needed)} there. In a container, start it with a larger --shm-size; "
        "or take fewer ranks."
    )
