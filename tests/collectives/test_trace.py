"""A trace is plain data: it counts, compares, and comes back from a file as it was."""

import ml_dtypes
import numpy as np
import pytest

from labkit.collectives import Trace, changes, run
from labkit.kinds import LabError, measured
from labkit.plain import dump, load


def pass_on(comm, buffer):
    """Rank 0's first half to 1, and on to 2."""
    half = buffer[: buffer.size // 2]
    if comm.rank:
        comm.Recv(half, comm.rank - 1)
    if comm.rank + 1 < comm.size:
        comm.Send(half, comm.rank + 1)


def test_bytes_and_messages_are_counted_per_rank_and_per_link():
    trace = run(pass_on, np.zeros((3, 4), "f4"))
    assert (trace.bytes_sent, trace.bytes_received) == ((8, 8, 0), (0, 8, 8))
    assert trace.messages_sent == (1, 1, 0)
    assert trace.links() == {(0, 1): 8, (1, 2): 8}
    assert (trace.steps, trace.itemsize) == (2, 4)


def test_it_shows_itself_in_one_line():
    assert repr(run(pass_on, ranks=3)) == (
        "Trace(pass_on: 3 ranks, 2 messages, 2 steps, 8 B from the busiest rank)"
    )
    assert repr(run(pass_on, ranks=1)) == (
        "Trace(pass_on: 1 rank, 0 messages, 0 steps, 0 B from the busiest rank)"
    )


@pytest.mark.parametrize("dtype", ["f8", ">i4", "c8", "bool", ml_dtypes.bfloat16])
def test_a_file_brings_back_an_equal_trace(tmp_path, dtype):
    trace = run(pass_on, [np.arange(6).reshape(6).astype(dtype) for _ in range(3)])
    again = Trace.load(trace.save(tmp_path / "trace.json"))
    assert again == trace
    assert again.outputs[2].dtype == np.dtype(dtype)
    assert np.array_equal(again.outputs[2], trace.outputs[2])


def test_a_trace_of_another_run_differs():
    assert run(pass_on, ranks=3) == run(pass_on, ranks=3)
    assert run(pass_on, ranks=3) != run(pass_on, np.zeros((3, 3)))


def test_it_runs_again_on_other_data_unless_it_comes_from_a_file(tmp_path):
    trace = run(pass_on, ranks=3)
    other = trace._again([np.ones(2), np.zeros(2), np.zeros(2)])
    assert [output.tolist() for output in other.outputs] == [[1, 1], [1, 0], [1, 0]]
    assert Trace.load(trace.save(tmp_path / "trace.json"))._again is None


def test_its_arrays_cannot_be_written_to():
    trace = run(pass_on, ranks=2)
    with pytest.raises(ValueError, match="read-only"):
        trace.outputs[0][0] = 3


def test_a_run_that_changes_too_much_says_that_it_kept_no_states(monkeypatch):
    monkeypatch.setattr(changes, "KEEP", 15)
    assert run(pass_on, np.arange(8.0).reshape(2, 4)[::-1]).complete is False
    assert run(pass_on, np.arange(8.0).reshape(2, 4)[::-1]).states == ()
    assert run(pass_on, ranks=2).complete is True


def test_changes_far_apart_are_kept_apart():
    def both_ends(comm, buffer):
        buffer[0] = buffer[-1] = 1

    trace = run(both_ends, np.zeros((1, 100)))
    assert [(state.start, len(state.data)) for state in trace.states] == [(0, 8), (99, 8)]


def test_a_file_that_is_none_is_named(tmp_path):
    with pytest.raises(LabError, match="cannot be read"):
        Trace.load(tmp_path / "nothing.json")
    (tmp_path / "kind.json").write_text(dump(measured("a laptop")))
    with pytest.raises(LabError, match="holds a Kind, and no trace"):
        Trace.load(tmp_path / "kind.json")


def test_damaged_bytes_are_named():
    text = dump(run(pass_on, ranks=2)).replace('"data": "', '"data": "!', 1)
    with pytest.raises(LabError, match="The Trace in this file is damaged"):
        load(text)


def test_a_place_that_does_not_exist_is_told(tmp_path):
    with pytest.raises(LabError, match="cannot be written: No such file or directory"):
        run(pass_on, ranks=2).save(tmp_path / "none" / "a.json")
