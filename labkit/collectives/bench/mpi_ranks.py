"""One rank under mpiexec: the MPI library's own collectives and labkit's programs, interleaved.

$ mpiexec -n 4 python -m labkit.collectives.bench.mpi_ranks plan.json
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from labkit.collectives import programs
from labkit.collectives.askers import end_with
from labkit.collectives.bench.rounds import Contender, Group, time_all
from labkit.collectives.bench.speaking import say, telling
from labkit.collectives.operations import Array
from labkit.collectives.shipping import unpack


def main(path: str) -> None:
    """Measure what the plan says; rank 0 reports."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    plan = json.loads(Path(path).read_text(encoding="utf-8"))
    end_with(plan["asker"])
    try:
        _measure(MPI, comm, plan)
    except Exception as fault:  # noqa: BLE001 (whatever a program raises is reported, and ends all)
        say("fault", f"rank {comm.Get_rank()} raised {type(fault).__name__}: {fault}")
        comm.Abort(1)


def _measure(mpi: Any, comm: Any, plan: dict[str, Any]) -> None:
    rank, ranks = comm.Get_rank(), comm.Get_size()
    group = Group(rank, ranks, comm.Barrier, lambda value: float(comm.allreduce(value, op=mpi.MAX)))
    shipped = {name: unpack(base64.b64decode(packed)) for name, packed in plan["shipped"].items()}

    def contenders(count: int) -> dict[str, Contender]:
        buffer = np.empty(count, plan["dtype"])

        def fill(made: Callable[[int], Array]) -> None:
            buffer[:] = made(rank)

        def call_of(name: str) -> Callable[[], object]:
            if name == "mpi":
                return library_call(mpi, comm, plan["collective"], buffer)
            return partial(shipped.get(name) or getattr(programs, name), comm, buffer)

        return {
            name: Contender(fill, call_of(name), lambda: [(rank, buffer)])
            for name in plan["contenders"]
        }

    found = time_all(plan, contenders, group, telling(silent=rank != 0))
    if rank == 0:
        vendor, version = mpi.get_vendor()
        library = f"{vendor} {'.'.join(map(str, version))}, mpi4py"
        say("result", {"timings": found, "library": library})


def library_call(mpi: Any, comm: Any, collective: str, buffer: Array) -> Callable[[], object]:
    """The MPI call that does what our programs do, in place where MPI can."""
    rank, ranks = comm.Get_rank(), comm.Get_size()
    here = mpi.IN_PLACE
    if collective == "all_reduce":
        return lambda: comm.Allreduce(here, buffer)
    if collective == "broadcast":
        return lambda: comm.Bcast(buffer, root=0)
    if collective == "reduce":
        if rank == 0:
            return lambda: comm.Reduce(here, buffer, root=0)
        return lambda: comm.Reduce(buffer, None, root=0)
    if collective == "all_gather":
        return lambda: comm.Allgather(here, buffer)
    if collective == "all_to_all":
        return lambda: comm.Alltoall(here, buffer)
    # Reduce_scatter_block in place leaves the result at the front; ours, in the rank's own chunk.
    own = buffer.reshape(ranks, -1)[rank]
    received = np.empty_like(own)

    def reduce_scatter() -> None:
        comm.Reduce_scatter_block(buffer, received)
        own[:] = received

    return reduce_scatter


if __name__ == "__main__":
    main(sys.argv[1])
