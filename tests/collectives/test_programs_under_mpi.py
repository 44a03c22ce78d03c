"""Every program under a real MPI leaves the bits of the simulated ranks: one start for all of them.

That these are right is the test of test_programs.py.
"""

import numpy as np
import pytest

from labkit import LabError, collectives
from labkit.collectives import programs
from labkit.mpi.run import mpiexec

try:
    mpiexec()
except LabError as fault:
    pytest.skip(str(fault), allow_module_level=True)

SIZES = 1, 40_002  # the latter is beyond what MPI sends eagerly
# On 2 cores they take turns.
COUNTS = [3, *(pytest.param(count, marks=pytest.mark.stress) for count in (2, 4))]


def inputs(ranks, size):
    """Such that another order of adding gives other bits."""
    return list(np.random.default_rng(1).normal(size=(ranks, size - size % ranks)).astype("f4"))


def all_programs(comm, buffer, folder):
    """Each rank leaves its arrays in folder/RANK.npz."""
    rank, arrays = comm.Get_rank(), {}
    for name in programs.MEANING:
        for size in SIZES:
            array = arrays[f"{name} {size}"] = inputs(comm.Get_size(), size)[rank]
            getattr(programs, name)(comm, array)
    np.savez(f"{folder}/{rank}.npz", **arrays)


@pytest.fixture(scope="module", params=COUNTS, ids="{} processes".format)
def left(request, tmp_path_factory):
    """What every rank was left with, for each program and size."""
    folder = tmp_path_factory.mktemp("mpi")
    collectives.run_mpi(all_programs, ranks=request.param, timeout=120, folder=str(folder))
    return [dict(np.load(folder / f"{rank}.npz")) for rank in range(request.param)]


@pytest.mark.parametrize("name", programs.MEANING)
def test_simulated_ranks_leave_the_same_bits_as_processes(name, left):
    for size in SIZES:
        trace = collectives.run(getattr(programs, name), inputs(len(left), size))
        for simulated, real in zip(trace.outputs, left, strict=True):
            np.testing.assert_array_equal(simulated, real[f"{name} {size}"])
