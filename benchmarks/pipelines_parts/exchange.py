"""Four ranks start and each sends 1 MB to the next: warm ranks of labkit.cluster, and mpiexec.

Warm ranks take a twelfth of mpiexec's time (0.037 of 0.436 s, two cores): 13 ms until the last rank
is forked and runs, 11 ms for the connections and the megabytes, 6 ms until all have ended.

`results(quick)` gives the row. Rounds take turns; a time ends when every rank has its megabyte. As
a script this is the program of mpiexec's ranks; labkit's run the same `program(comm)`.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from typing import Any

RANKS = 4
ROUNDS = 15


def program(comm: Any) -> float:
    """Send 1 MB to the next rank, receive it from the one before."""
    import numpy as np

    rank, size = comm.Get_rank(), comm.Get_size()
    sent, received = np.full(131_072, float(rank)), np.empty(131_072)
    comm.Sendrecv(sent, dest=(rank + 1) % size, recvbuf=received, source=(rank - 1) % size)
    return float(received[-1])


def warm_ranks() -> float:
    """Seconds of a block with one run, as in a second cell of a notebook."""
    import labkit

    begun = time.perf_counter()
    with labkit.cluster(ranks=RANKS, keep_warm=True) as c:
        found = c.run(lambda rank: program(labkit.cluster.communicator()))
    assert found == [3.0, 0.0, 1.0, 2.0]
    return time.perf_counter() - begun


def mpiexec_ranks() -> float:
    """Seconds until every rank that mpiexec starts has printed its line."""
    from labkit.mpi.gforker import command_for
    from labkit.mpi.run import environment, mpiexec

    begun = time.perf_counter()
    command = [*command_for(mpiexec()), "-n", str(RANKS), sys.executable, __file__]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env=environment()
    ) as process:
        assert process.stdout is not None
        seen = ""
        while seen.count("received") < RANKS:  # mpiexec may put two lines into one
            seen += (line := process.stdout.readline())
            assert line, f"mpiexec ended early: {seen}"
        return time.perf_counter() - begun


def results(quick: bool) -> list[Any]:
    """The ratio of the medians, with the interval of both quartiles."""
    from harness import Row

    import labkit
    from labkit.mpi.run import mpiexec

    try:
        mpiexec()
    except labkit.LabError as fault:
        print(f"mpiexec is left out: {fault}")
        return []
    ways = {"warm ranks": warm_ranks, "mpiexec": mpiexec_ranks}
    times: dict[str, list[float]] = {name: [] for name in ways}
    warm_ranks()  # this one starts the process that is then warm
    for _ in range(5 if quick else ROUNDS):
        for name, way in ways.items():
            times[name].append(way())
    labkit.cluster.shutdown()
    for name, found in times.items():
        print(f"{RANKS} ranks start and exchange 1 MB, {name}: {statistics.median(found):.3f} s")
    ours, theirs = (statistics.quantiles(found, n=4) for found in times.values())
    ratio, low, high = theirs[1] / ours[1], theirs[0] / ours[2], theirs[2] / ours[0]
    return [Row("4 warm ranks start, 1 MB each", "mpiexec", ratio, low, high)]


if __name__ == "__main__":
    from mpi4py import MPI

    print(f"received {program(MPI.COMM_WORLD)}", flush=True)
