"""One rank of `run_mpi`: python -m labkit.collectives.mpi.rank FOLDER PID, started by mpiexec.

PID is the process that waits for the result.
"""

from __future__ import annotations

import faulthandler
import json
import os
import pickle
import shutil
import sys
from pathlib import Path
from typing import Any

from labkit.collectives.mpi.exit_with_parent import exit_with_parent
from labkit.collectives.mpi.gforker import clear

__all__ = ["main"]


def main() -> None:
    """Read this rank's buffer, run the program, write the buffer; or write what went wrong."""
    folder, launcher = Path(sys.argv[1]), os.getppid()

    def clean_up() -> None:  # the process that would have done it is no more
        clear(launcher)
        shutil.rmtree(folder, ignore_errors=True)

    exit_with_parent(int(sys.argv[2]), clean_up)
    from mpi4py import MPI

    from labkit.collectives.source import Lines
    from labkit.shipping import unpack_program

    comm = MPI.COMM_WORLD
    rank = comm.Get_rank()
    lines = None
    try:
        program, (options,) = unpack_program((folder / "program").read_bytes())
        lines = Lines(program)
        deadline = float((folder / "deadline").read_text())
        buffer = pickle.loads((folder / f"input{rank}").read_bytes())  # noqa: S301 (our own)
        comm.Barrier()  # the deadline is the program's, not the start's
        with (folder / f"report{rank}").open("w") as report:
            faulthandler.dump_traceback_later(deadline, file=report)
            program(comm, buffer, **options)
            faulthandler.cancel_dump_traceback_later()
    except (Exception, SystemExit) as fault:  # noqa: BLE001 (whatever the program raises is shown)
        faulthandler.cancel_dump_traceback_later()
        _report(folder, rank, fault, lines)
        comm.Abort(1)
    comm.Barrier()  # a rank that raises ends all, also those that are done
    MPI.Finalize()
    _write(folder, f"output{rank}", pickle.dumps(buffer))


def _report(folder: Path, rank: int, fault: BaseException, lines: Any) -> None:
    from labkit.collectives.errors import rank_raised
    from labkit.kinds import LabError

    if lines is None or isinstance(fault, LabError):
        text = f"{fault}" if isinstance(fault, LabError) else f"Rank {rank} did not start: {fault}"
    else:
        text = str(rank_raised(rank, fault, lines))
    _write(folder, f"fault{rank}", json.dumps(text).encode())


def _write(folder: Path, name: str, data: bytes) -> None:
    """All at once: who sees the file sees all of it."""
    half = folder / f"{name}.half"
    half.write_bytes(data)
    half.rename(folder / name)


if __name__ == "__main__":
    main()
