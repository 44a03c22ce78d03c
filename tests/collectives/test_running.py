"""What `run` takes, what it makes of it, and which lines of the program it writes down."""

import functools
import linecache
import pickle

import numpy as np
import pytest

from labkit.collectives import run
from labkit.collectives.programs import ring_all_reduce
from labkit.kinds import LabError


def keep(comm, buffer):
    """Do nothing."""


def scaled(comm, buffer, factor, add=0):
    buffer *= factor
    buffer += add


def test_ready_made_data_count_through_the_ranks():
    assert [row.tolist() for row in run(keep, ranks=3).inputs] == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]


def test_inputs_are_copied():
    given = [np.zeros(2), np.zeros(2)]
    run(scaled, given, factor=1, add=5)
    assert given[0].tolist() == [0, 0]


def test_ranks_may_have_buffers_of_different_shapes():
    assert [o.shape for o in run(keep, [np.zeros(2), np.zeros((3, 1)), [1.0]]).outputs] == [
        (2,),
        (3, 1),
        (1,),
    ]


def test_keywords_go_to_the_program_and_into_the_trace():
    trace = run(scaled, ranks=1, factor=3, add=1)
    assert trace.outputs[0].tolist() == [4]
    assert trace.options == {"factor": "3", "add": "1"}
    assert run(functools.partial(scaled, factor=2), ranks=1).program == "scaled"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({}, "A run needs its data"),
        ({"ranks": 0}, "ranks=0 is no number of ranks"),
        ({"ranks": 2.5}, "ranks=2.5 is no number of ranks"),
        ({"ranks": True}, "ranks=True is no number"),
        ({"inputs": []}, "inputs is empty"),
        ({"inputs": 3.0}, "inputs=3.0 is no list of arrays"),
        ({"inputs": [[1.0], [2.0]], "ranks": 3}, "inputs for 2 ranks, and ranks=3"),
        ({"inputs": [[1.0], [2]]}, "Rank 0's input holds float64, and rank 1's int64"),
        ({"inputs": [["a"], ["b"]]}, "and no numbers"),
        ({"inputs": [[1, [2]]]}, "rank 0's input is no array of numbers"),
    ],
)
def test_data_that_are_none_are_explained(arguments, sentence):
    with pytest.raises(LabError) as caught:
        run(keep, **arguments)
    assert sentence in str(caught.value)


def test_a_program_that_cannot_be_called_is_explained():
    with pytest.raises(LabError, match="3 is no program"):
        run(3, ranks=1)
    with pytest.raises(
        LabError, match=r"scaled cannot be called as program\(comm, buffer\): missing"
    ):
        run(scaled, ranks=1)
    with pytest.raises(LabError, match=r"\(comm, buffer, way=\.\.\.\): got an unexpected"):
        run(keep, ranks=1, way="up")


def test_a_program_that_returns_what_it_should_have_written_is_noted():
    assert "works in place" in run(lambda comm, buffer: buffer + 1, ranks=2).note
    assert run(keep, ranks=2).note == ""


def send_round(comm, buffer):
    right = (comm.rank + 1) % comm.size
    pass_to(
        comm,
        buffer,
        right,
    )


def pass_to(comm, buffer, right):
    scratch = np.empty_like(buffer)
    comm.Sendrecv(buffer, right, recvbuf=scratch)
    buffer[:] = scratch


def test_a_call_knows_its_function_and_line():
    trace = run(send_round, ranks=2)
    (source,) = trace.sources
    assert (source.name, source.first) == ("pass_to", pass_to.__code__.co_firstlineno)
    assert source.text.startswith("def pass_to(comm")
    assert {call.place.line for call in trace.calls} == {3}


def test_a_comprehension_is_part_of_its_function():
    def program(comm, buffer):
        requests = [comm.Isend(buffer, comm.rank) for _ in range(1)]
        requests += [comm.Irecv(np.empty_like(buffer), comm.rank)]
        for request in requests:
            request.Wait()

    trace = run(program, ranks=1)
    assert [source.name for source in trace.sources] == ["program"]
    assert [call.place.line for call in trace.calls] == [2, 3, 5, 5]


def test_a_cell_of_a_notebook_is_read_as_it_was_typed():
    text = "\n\ndef program(comm, buffer):\n    comm.Barrier()\n"
    linecache.cache["<cell 3>"] = (len(text), None, text.splitlines(keepends=True), "<cell 3>")
    names = {}
    exec(compile(text, "<cell 3>", "exec"), names)
    trace = run(names["program"], ranks=2)
    assert (trace.sources[0].first, trace.calls[0].place.line) == (3, 2)


def test_a_program_without_source_has_lines_all_the_same():
    names = {}
    exec("def program(comm, buffer):\n    comm.Recv(buffer, 1 - comm.rank)\n", names)
    with pytest.raises(LabError, match=r"rank 0 waits in Recv from rank 1 \(line 2\)"):
        run(names["program"], ranks=2)


def test_a_run_may_start_another():
    def program(comm, buffer):
        buffer[:] = run(scaled, [buffer, buffer], factor=2).outputs[1]
        comm.Barrier()

    assert run(program, [[1.0], [2.0]]).outputs[1].tolist() == [4]


def test_a_partial_has_its_options_in_the_trace():
    trace = run(functools.partial(ring_all_reduce, op="max"), ranks=3)
    assert trace.options == {"op": "'max'"}
    assert str(trace.check("all_reduce")).startswith("ring_all_reduce is an all_reduce (max)")


def test_a_trace_travels_to_other_processes_and_can_run_again_there():
    trace = run(ring_all_reduce, ranks=3)
    there = pickle.loads(pickle.dumps(trace))
    assert there == trace
    assert "exactly once" in str(there.check("all_reduce"))


def test_inputs_may_be_named_by_their_ranks():
    assert run(ring_all_reduce, {0: [1.0], 1: [2.0]}).outputs[0].tolist() == [3.0]


def test_dates_are_no_numbers():
    with pytest.raises(LabError, match="and no numbers"):
        run(ring_all_reduce, [np.array(["2026-11-21"], dtype="M8[D]")] * 2)


def generator(comm, buffer):
    yield comm.Barrier()


async def later(comm, buffer):
    comm.Barrier()


@pytest.mark.parametrize("program", [generator, later])
def test_a_program_that_would_not_run_is_told(program):
    with pytest.raises(LabError, match="a generator or an async function, which would not run"):
        run(program, ranks=2)


@pytest.mark.parametrize("limits", [{"deadline": d} for d in (None, 0, -1, "x", float("nan"))]
                         + [{"eager": e} for e in (None, -1, "x", True)])  # fmt: skip
def test_limits_that_are_none_are_told(limits):
    ((name, value),) = limits.items()
    with pytest.raises(LabError, match=f"{name}={value!r} is no"):
        run(ring_all_reduce, ranks=2, **limits)
