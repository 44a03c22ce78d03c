"""Every program with every operation and dtype under a real MPI: one start for all of them."""

import numpy as np
import pytest

from labkit import LabError, collectives
from labkit.collectives import programs
from labkit.mpi.run import mpiexec
from tests.collectives.numpy_oracle import OPS, REDUCING, assert_done, exact_inputs

try:
    mpiexec()
except LabError as fault:
    pytest.skip(str(fault), allow_module_level=True)

# numpy's half has no counterpart in this MPI.
DTYPES = ["f4", "c16", "i8", "?"]
# On 2 cores they take turns.
COUNTS = [3, *(pytest.param(count, marks=pytest.mark.stress) for count in (2, 4))]


def cases(ranks):
    """(name in the file, program, dtype, elements, options) of everything that is run."""
    for program, meaning in programs.MEANING.items():
        for op in OPS if meaning in REDUCING else [None]:
            for dtype in DTYPES:
                for size in {0, 1, ranks, 12 * ranks + 1}:
                    if meaning == "all_to_all" and size % ranks:
                        continue
                    options = {} if op is None else {"op": op}
                    if meaning in ("broadcast", "reduce", "scatter", "gather"):
                        options["root"] = ranks - 1
                    yield f"{program} {op} {dtype} {size}", program, dtype, size, options


def big_inputs(ranks):
    """Beyond what MPI sends eagerly, and such that another order of adding gives other bits."""
    return list(np.random.default_rng(1).normal(size=(ranks, 40_001)).astype("f4"))


def all_cases(comm, buffer, folder):
    """Each rank leaves its arrays in folder/RANK.npz."""
    rank, ranks = comm.Get_rank(), comm.Get_size()
    arrays = {}
    for name, program, dtype, size, options in cases(ranks):
        arrays[name] = exact_inputs(ranks, (size,), dtype)[rank]
        getattr(programs, program)(comm, arrays[name], **options)
    for program in programs.ALL_REDUCES:
        arrays[program] = big_inputs(ranks)[rank]
        getattr(programs, program)(comm, arrays[program])
    np.savez(f"{folder}/{rank}.npz", **arrays)


@pytest.fixture(scope="module", params=COUNTS, ids="{} processes".format)
def left(request, tmp_path_factory):
    """What every rank was left with, for each case."""
    folder = tmp_path_factory.mktemp("mpi")
    collectives.run_mpi(all_cases, ranks=request.param, timeout=120, folder=str(folder))
    return [dict(np.load(folder / f"{rank}.npz")) for rank in range(request.param)]


@pytest.mark.parametrize("program", programs.MEANING)
def test_under_mpiexec_a_program_does_what_numpy_does(program, left):
    tried = [case for case in cases(len(left)) if case[1] == program]
    assert tried
    for name, _, dtype, size, options in tried:
        inputs = exact_inputs(len(left), (size,), dtype)
        outputs = [arrays[name] for arrays in left]
        assert_done(programs.MEANING[program], inputs, outputs, **options)


@pytest.mark.parametrize("program", programs.ALL_REDUCES)
def test_simulated_ranks_leave_the_same_bits_as_processes(program, left):
    inputs = big_inputs(len(left))
    trace = collectives.run(getattr(programs, program), inputs)
    for simulated, real in zip(trace.outputs, left, strict=True):
        np.testing.assert_array_equal(simulated, real[program])
    np.testing.assert_allclose(trace.outputs[0], np.sum(inputs, axis=0), rtol=1e-3, atol=1e-4)
