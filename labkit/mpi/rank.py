"""One rank: python -m labkit.mpi.rank FOLDER PID, started by mpiexec.

PID is the process that waits for the result.
"""

import faulthandler
import pickle
import re
import sys
from pathlib import Path
from typing import Any

from labkit.mpi.gforker import exit_with_parent


def world() -> Any:
    """COMM_WORLD, which moves the types that MPI lacks, such as bfloat16, as integers."""
    import numpy as np
    from mpi4py import MPI

    def plain(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(map(plain, value))
        lacks = isinstance(value, np.ndarray) and value.dtype.isbuiltin == 2
        return value.view(f"u{value.itemsize}") if lacks else value

    class World(MPI.Intracomm):
        def __getattribute__(self, name: str) -> Any:
            call = super().__getattribute__(name)
            if name == "Split":
                return lambda *how, **named: World(call(*how, **named))
            if not name[0].isupper() or re.search("[Rr]educe|[Ss]can", name):
                return call
            return lambda *args, **kw: call(*plain(args), **{k: plain(v) for k, v in kw.items()})

    return World(MPI.COMM_WORLD)


def main(folder: Path, parent: int) -> None:
    """Read this rank's buffer, run the program, write the buffer; or write what went wrong."""
    exit_with_parent(parent, folder)
    from mpi4py import MPI

    from labkit.kinds import LabError
    from labkit.plain import atomic_write
    from labkit.shipping import exit_is_return, unpack_program

    comm = world()
    rank = comm.Get_rank()
    describe = None
    try:
        program, (options, timeout, describe) = unpack_program((folder / "job").read_bytes())
        buffer = pickle.loads((folder / f"input{rank}").read_bytes())  # noqa: S301 (our own)
        comm.Barrier()  # the timeout is the program's, not the start's
        with (folder / f"report{rank}").open("w") as report:
            faulthandler.dump_traceback_later(timeout, repeat=True, file=report)
            with exit_is_return():
                program(comm, buffer, **options)
            faulthandler.cancel_dump_traceback_later()
    except (Exception, SystemExit) as fault:  # noqa: BLE001 (whatever the program raises is shown)
        faulthandler.cancel_dump_traceback_later()
        if describe is None:
            text = f"Rank {rank} did not start: {fault}"
        else:
            text = str(fault) if isinstance(fault, LabError) else describe(rank, fault, program)
        atomic_write(folder / f"fault{rank}", text)
        comm.Abort(1)
    comm.Barrier()  # a rank that raises ends all, also those that are done
    MPI.Finalize()
    atomic_write(folder / f"output{rank}", pickle.dumps(buffer))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
