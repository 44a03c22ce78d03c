import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from labkit import collectives
from labkit.collectives import programs
from tests.collectives import under_mpi
from tests.collectives.numpy_oracle import assert_done, exact_inputs

ROOT = Path(__file__).parents[2]
MPIEXEC = Path(sys.executable).with_name("mpiexec")

pytestmark = pytest.mark.skipif(
    find_spec("mpi4py") is None or not MPIEXEC.exists(),
    reason="no MPI is installed",
)


# On 2 cores they take turns, which takes 15 s.
FOUR = pytest.param(4, marks=pytest.mark.stress)


@pytest.fixture(scope="module", params=[2, 3, FOUR], ids="{} processes".format)
def left(request, tmp_path_factory):
    """What every rank was left with, for each case: one start of mpiexec for all of them."""
    folder = tmp_path_factory.mktemp("mpi")
    run = [MPIEXEC, "-n", str(request.param), sys.executable, "-m", under_mpi.__name__, folder]
    job = subprocess.Popen(
        [str(word) for word in run],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = job.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        pytest.fail(f"the ranks did not come to an end: {job.communicate()[0]}")
    assert job.returncode == 0, output
    return [dict(np.load(folder / f"{rank}.npz")) for rank in range(request.param)]


@pytest.mark.parametrize("program", programs.MEANING)
def test_under_mpiexec_a_program_does_what_numpy_does(program, left):
    cases = [case for case in under_mpi.cases(len(left)) if case[1] == program]
    assert cases
    for name, _, dtype, size, options in cases:
        inputs = exact_inputs(len(left), (size,), dtype)
        outputs = [arrays[name] for arrays in left]
        assert_done(programs.MEANING[program], inputs, outputs, **options)


@pytest.mark.parametrize("program", programs.ALL_REDUCES)
def test_simulated_ranks_leave_the_same_bits_as_processes(program, left):
    inputs = under_mpi.big_inputs(len(left))
    trace = collectives.run(getattr(programs, program), inputs)
    for simulated, real in zip(trace.outputs, left, strict=True):
        np.testing.assert_array_equal(simulated, real[program])
    np.testing.assert_allclose(trace.outputs[0], np.sum(inputs, axis=0), rtol=1e-3, atol=1e-4)
