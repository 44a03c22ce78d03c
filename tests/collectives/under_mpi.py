"""Every program with every operation and dtype, in one start of mpiexec.

Run as `mpiexec -n 4 python -m tests.collectives.under_mpi FOLDER`: each rank leaves its arrays in
FOLDER/RANK.npz, and test_programs_under_mpi.py looks at them.
"""

from __future__ import annotations

import sys

import numpy as np

from labkit.collectives import programs
from tests.collectives.numpy_oracle import OPS, REDUCING, exact_inputs

# numpy's half has no counterpart in this MPI.
DTYPES = ["f4", "f8", "c16", "i1", "i8", "u4", "?"]


def cases(ranks):
    """(name in the file, program, dtype, elements, options) of everything that is run."""
    for program, meaning in programs.MEANING.items():
        for op in OPS if meaning in REDUCING else [None]:
            for dtype in DTYPES:
                if op == "mean" and dtype == "?":
                    continue
                for size in {0, 1, 5, ranks, 12 * ranks + 1, 12 * ranks}:
                    if meaning == "all_to_all" and size % ranks:
                        continue
                    options = {} if op is None else {"op": op}
                    if meaning in ("broadcast", "reduce", "scatter", "gather"):
                        options["root"] = ranks - 1
                    yield f"{program} {op} {dtype} {size}", program, dtype, size, options


def big_inputs(ranks):
    """Beyond what MPI sends eagerly, and such that another order of adding gives other bits."""
    return list(np.random.default_rng(1).normal(size=(ranks, 40_001)).astype("f4"))


def main():
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    rank, ranks = comm.Get_rank(), comm.Get_size()
    left = {}
    for name, program, dtype, size, options in cases(ranks):
        left[name] = exact_inputs(ranks, (size,), dtype)[rank]
        getattr(programs, program)(comm, left[name], **options)
    for program in programs.ALL_REDUCES:
        left[program] = big_inputs(ranks)[rank]
        getattr(programs, program)(comm, left[program])
    np.savez(f"{sys.argv[1]}/{rank}.npz", **left)


if __name__ == "__main__":
    main()
