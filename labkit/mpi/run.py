"""Start a program in a process per rank, under mpiexec, and bring back what the ranks leave."""

import contextlib
import importlib.util
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

from labkit.kinds import LabError, in_the_lab
from labkit.mpi.gforker import clear, command_for
from labkit.shipping import pack_program
from labkit.time_limit import slowdown

MOST_PROCESSES = 64  # processes on one machine
START = 60.0  # seconds that mpiexec may take to start the ranks
DRAIN = 0.5  # seconds for mpiexec to pass on the last of the output
REPORT = 2.0  # seconds that the other ranks have to say where they are, after the first did
EARLY = "the start of the program"  # on a busy machine a rank may not have come further yet


def mpiexec() -> str:
    """The program that starts ranks: this environment's own before the machine's."""
    if importlib.util.find_spec("mpi4py") is None:
        raise LabError(
            "mpi4py is not installed here; everything else of the collectives works without. "
            + in_the_lab("In the course's folder: make lab; elsewhere: pip install mpi4py mpich.")
        )
    # gforker, which MPICH has for ranks on one machine, uses pipes; other launchers listen for
    # their ranks on every network that the machine is in.
    beside = [Path(sys.executable).with_name(name) for name in ("mpiexec.gforker", "mpiexec")]
    found = next((str(path) for path in beside if path.exists()), shutil.which("mpiexec"))
    if found is None:
        raise LabError(
            "There is no mpiexec on this machine. In the folder of the course: make lab; "
            "elsewhere: pip install mpich, or apt install openmpi-bin."
        )
    return found


def loopback() -> str:
    """The network interface that leads to this machine alone."""
    return "lo0" if sys.platform == "darwin" else "lo"


def environment() -> dict[str, str]:
    """What mpiexec needs to know: this Python's paths, and that all ranks are on this machine."""
    paths = [str(Path(path).absolute()) for path in sys.path if path]
    return {
        **os.environ,
        "PYTHONIOENCODING": "ascii:backslashreplace",  # gforker breaks the pipe at any other letter
        "PYTHONPATH": os.pathsep.join(dict.fromkeys([*paths, str(Path.cwd())])),
        # Ranks, too, would listen on every network, though they use shared memory.
        "UCX_NET_DEVICES": loopback(),
        "FI_TCP_IFACE": loopback(),
        "HYDRA_IFACE": loopback(),
        "HYDRA_LAUNCHER": "fork",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        "OMPI_MCA_btl": "self,tcp",
        "OMPI_MCA_btl_tcp_if_include": loopback(),
        "OMPI_MCA_pml": "ob1",
    }


def run_processes(
    program: Callable[..., Any],
    buffers: Sequence[Any],
    options: dict[str, Any],
    timeout: float,
    describe: Callable[[int, BaseException, Callable[..., Any]], str],
) -> list[Any]:
    """What `program(comm, buffer, **options)` leaves in each rank's buffer.

    `comm` is mpi4py's COMM_WORLD. Programs that do not end are stopped after `timeout` seconds,
    on a busy machine later; `describe(rank, exception, program)` is the sentence for one that
    raises.
    """
    ranks, slower = len(buffers), slowdown()
    job = pack_program(program, (options, slower * timeout, describe))
    with tempfile.TemporaryDirectory(prefix="labkit-mpi-") as name:
        folder = Path(name)
        (folder / "job").write_bytes(job)
        for rank, buffer in enumerate(buffers):
            (folder / f"input{rank}").write_bytes(pickle.dumps(buffer))
        results = [folder / f"output{rank}" for rank in range(ranks)]
        module = ["-m", "labkit.mpi.rank", name, str(os.getpid())]
        command = [*command_for(mpiexec()), "-n", str(ranks), sys.executable, *module]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                env=environment(), start_new_session=True,
            )  # fmt: skip
        try:
            until = time.monotonic() + slower * (timeout + START)
            while process.poll() is None and time.monotonic() < until:
                at = [_position(folder, rank) for rank in range(ranks)]
                if all(path.exists() for path in results):
                    # mpiexec may take seconds more to end, but has soon passed on what was printed.
                    until = min(until, time.monotonic() + DRAIN)
                if all(at) and EARLY not in at:
                    break
                if any(at):
                    until = min(until, time.monotonic() + REPORT)
                time.sleep(0.02)
        finally:
            _stop(process)
        for fault in sorted(folder.glob("fault*")):
            raise LabError(fault.read_text(encoding="utf-8"))
        positions = {rank: _position(folder, rank) for rank in range(ranks)}
        if any(positions.values()):
            text = ", ".join(f"rank {rank} was in {at}" for rank, at in positions.items() if at)
            raise LabError(
                f"The program had not ended after {timeout:g} s under MPI: {text}. "
                "collectives.run with the same program names the ranks that wait for each other; "
                "a long program needs more time with timeout=."
            )
        output = (folder / "log").read_text(encoding="utf-8", errors="replace")
        if not all(path.exists() for path in results):
            raise LabError(
                "mpiexec ended, or was stopped, without a result from every rank. "
                f"Its output: {output.strip()[-600:] or 'none'}"
            )
        print(output, end="")
        return [pickle.loads(path.read_bytes()) for path in results]  # noqa: S301 (our own)


def _stop(process: subprocess.Popen[Any]) -> None:
    """End mpiexec and its ranks: with a request first, as it then takes them along, then by force.

    The shared memory of ranks that could not finalize is removed.
    """
    for how, timeout in ((signal.SIGTERM, 0.3), (signal.SIGKILL, 5.0)):
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(process.pid, how)
                process.wait(timeout)
    clear(process.pid)


def _position(folder: Path, rank: int) -> str:
    """Where the rank was when it last said so: the innermost line outside MPI and labkit's own."""
    report = folder / f"report{rank}"
    text = report.read_text(encoding="utf-8") if report.exists() else ""
    frames = re.findall(r'File "(.*)", line (\d+) in (\S+)', text.rpartition("Timeout (")[2])
    for file, line, function in frames:
        if Path(file).name not in ("gforker.py", "rank.py", "shipping.py", "threading.py"):
            return f"line {line} of {function}"
    return EARLY if frames else ""
