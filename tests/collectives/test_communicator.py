"""The calls of a communicator mean what mpi4py's mean: simulated, local and under MPI."""

import numpy as np
import pytest

import labkit
from labkit.collectives import programs, run, run_mpi
from labkit.collectives.clock import timed
from labkit.collectives.communicator import UNDEFINED
from labkit.kinds import LabError
from labkit.mpi.run import mpiexec

MPI = pytest.importorskip("mpi4py.MPI")
contract = pytest.importorskip("tests.collectives.contract")

PAIR = [[1.0, 2.0], [3.0, 4.0]]


def outputs(program, inputs=PAIR, **options):
    return [output.tolist() for output in run(program, inputs, **options).outputs]


# The contract.


def simulated(_):
    """By case, what each rank is left with."""
    cases = contract.CASES.items()
    return {name: outputs(program, contract.inputs()) for name, (program, _) in cases}


def under_mpi(folder):
    """The same, in processes of MPI: one start for all cases."""
    try:
        mpiexec()
    except LabError as fault:
        pytest.skip(str(fault))
    run_mpi(contract.save_all_cases, ranks=contract.RANKS, folder=str(folder))
    ranks = [np.load(folder / f"{rank}.npz") for rank in range(contract.RANKS)]
    return {name: [left[name].tolist() for left in ranks] for name in contract.CASES}


def in_a_cluster(_):
    """The same, in the ranks of labkit.cluster."""
    given = contract.inputs()
    with labkit.cluster(ranks=contract.RANKS) as c:
        ranks = c.run(lambda r: contract.all_cases(labkit.cluster.communicator(), given[r]))
    return {name: [left[name].tolist() for left in ranks] for name in contract.CASES}


WAYS = [simulated, in_a_cluster, under_mpi]


@pytest.fixture(scope="module", params=WAYS, ids=lambda way: way.__name__)
def left(request, tmp_path_factory):
    return request.param(tmp_path_factory.mktemp("contract"))


@pytest.mark.parametrize("case", contract.CASES)
def test_a_communicator_does_what_mpi_does(case, left):
    assert left[case] == contract.CASES[case][1]


# What only the simulated communicator does.


def test_the_record_of_a_split_names_ranks_of_the_run():
    def rows(comm, buffer):
        row = comm.Split(comm.Get_rank() // 3, key=-comm.Get_rank())
        programs.ring_all_reduce(row, buffer)

    trace = run(rows, ranks=6)
    wanted = [sum(trace.inputs[3 * (rank // 3) :][:3]) for rank in range(6)]
    np.testing.assert_array_equal(trace.outputs, wanted)
    assert {(one.source // 3, one.dest // 3) for one in trace.messages} == {(0, 0), (1, 1)}
    assert {(one.dest - one.source) % 3 for one in trace.messages} == {2}  # the keys turn it round
    assert trace.bytes_sent == run(programs.ring_all_reduce, list(np.ones((3, 6)))).bytes_sent * 2
    assert trace.steps == 4  # both rows at once


def test_a_program_that_names_no_mpi4py_tests_for_a_falsy_communicator():
    def program(comm, buffer):
        if part := comm.Split(UNDEFINED if comm.Get_rank() else 0):
            buffer[:] = part.Get_size()

    assert outputs(program) == [[1, 1], [3, 4]]


def test_a_barrier_of_some_ranks_makes_only_these_wait_on_the_clock():
    def program(comm, buffer):
        part = comm.Split(comm.Get_rank() // 3)
        rank = part.Get_rank()
        for _ in range(1 + comm.Get_rank() // 3 if rank < 2 else 0):
            part.Sendrecv(buffer.copy(), 1 - rank, 0, buffer, 1 - rank)
        part.Barrier()

    trace = run(program, [np.zeros(10, np.uint8)] * 6)
    # A message takes 1 + 10 / 10 = 2 seconds.
    assert timed(trace, latency=1.0, bandwidth=10.0).finished == (2, 2, 2, 4, 4, 4)


def test_any_other_datatype_is_refused():
    vector = MPI.DOUBLE.Create_vector(2, 1, 2).Commit()
    for spec in (lambda a: [a, 1, vector], lambda a: [a, 2, MPI.INT]):
        with pytest.raises(LabError, match=r"float64 with the datatype.*own datatype"):
            run(lambda comm, b, spec=spec: comm.Send(spec(b), 1 - comm.rank), PAIR)
    vector.Free()


def test_what_was_received_is_there_after_wait_and_not_in_the_states_before():
    def program(comm, buffer):
        if comm.rank == 0:
            comm.Send(buffer[:1], 1)
            return
        request = comm.Irecv(buffer[:1], 0)
        comm.Sendrecv(buffer[1:2], 1, recvbuf=np.empty(1), source=1)
        assert request.Wait() is True
        assert request.Wait() is True  # a second time is over at once

    trace = run(program, [[7.0, 0], [1.0, 0]])
    assert trace.outputs[1].tolist() == [7, 0]
    assert [np.frombuffer(state.data).tolist() for state in trace.states] == [[7.0]]


def test_another_call_says_what_to_use():
    for name, advice in {"AllReduce": "Use comm.Allreduce", "Scan": "There are .*Send"}.items():
        with pytest.raises(LabError, match=f"no comm.{name}.*{advice}"):
            run(lambda comm, buffer, name=name: getattr(comm, name)(buffer), ranks=1)


# Programs that say mpi4py's own names.

PROGRAM = """
{top}
import numpy as np
def program(comm, buffer):
    {inside}
    comm.Send(buffer, dest={MPI}PROC_NULL)
    into, status = np.empty(2), {MPI}Status()
    requests = [{MPI}REQUEST_NULL, comm.Irecv(into, source={MPI}ANY_SOURCE, tag={MPI}ANY_TAG)]
    comm.Isend(buffer, 1 - comm.Get_rank()).Wait()
    {MPI}Request.Waitall(requests, [{MPI}Status(), status])
    assert {MPI}Request.Waitany(requests) == {MPI}UNDEFINED
    buffer[:] = into[: status.Get_count({MPI}DOUBLE)]
"""
NAMES = "ANY_SOURCE, ANY_TAG, DOUBLE, PROC_NULL, REQUEST_NULL, Request, Status, UNDEFINED"
FORMS = {
    "top of the cell": {"top": "from mpi4py import MPI", "inside": "", "MPI": "MPI."},
    "its names": {"top": f"from mpi4py.MPI import {NAMES}", "inside": "", "MPI": ""},
    "in the function": {"top": "", "inside": "from mpi4py import MPI", "MPI": "MPI."},
    "names in it": {"top": "", "inside": f"from mpi4py.MPI import {NAMES}", "MPI": ""},
}


def written(text):
    """The program of a cell."""
    there = {}
    exec(text, there)
    return there["program"]


@pytest.mark.parametrize("form", FORMS)
def test_a_program_may_import_mpi4py_in_any_way(form):
    before = MPI.Request, MPI.Status, MPI.PROC_NULL
    assert outputs(written(PROGRAM.format(**FORMS[form]))) == [[3, 4], [1, 2]]
    assert (MPI.Request, MPI.Status, MPI.PROC_NULL) == before


def test_rank_minus_one_is_no_rank_also_in_a_program_that_has_loaded_mpi():
    text = (
        "from mpi4py import MPI\ndef program(comm, buffer):\n    comm.Send(buffer, comm.rank - 1)"
    )
    with pytest.raises(LabError, match=r"Rank 0's Send \(line 3\) names rank -1.*MPI.PROC_NULL"):
        run(written(text), PAIR)
