"""One rank of `run_mpi`: python -m labkit.collectives.mpi_rank FOLDER PID, started by mpiexec.

PID is the process that waits for the result.
"""

from __future__ import annotations

import faulthandler
import json
import pickle
import sys
from pathlib import Path
from typing import Any

from labkit.collectives.askers import end_with

__all__ = ["main"]


def main() -> None:
    """Read this rank's buffer, run the program, write the buffer; or write what went wrong."""
    end_with(int(sys.argv[2]))
    from mpi4py import MPI

    from labkit.collectives.lines import Lines
    from labkit.collectives.shipping import unpack

    folder, comm = Path(sys.argv[1]), MPI.COMM_WORLD
    rank = comm.Get_rank()
    lines = None
    try:
        program = unpack((folder / "program").read_bytes())
        lines = Lines(program)
        options, deadline = _load(folder / "options")
        buffer = _load(folder / f"input{rank}")
        comm.Barrier()  # the deadline is the program's, not the start's
        with (folder / f"report{rank}").open("w") as report:
            faulthandler.dump_traceback_later(deadline, file=report)
            program(comm, buffer, **options)
            faulthandler.cancel_dump_traceback_later()
    except (Exception, SystemExit) as fault:  # noqa: BLE001 (whatever the program raises is shown)
        faulthandler.cancel_dump_traceback_later()
        _tell(folder, rank, fault, lines)
        comm.Abort(1)
    comm.Barrier()  # a rank that raises ends all, also those that are done
    MPI.Finalize()
    _write(folder, f"output{rank}", pickle.dumps(buffer))


def _tell(folder: Path, rank: int, fault: BaseException, lines: Any) -> None:
    from labkit.collectives.faults import rank_raised
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


def _load(path: Path) -> Any:
    return pickle.loads(path.read_bytes())  # noqa: S301 (labkit's own, written a moment ago)


if __name__ == "__main__":
    main()
