"""What `run` takes, and what it leaves behind: calls, messages, steps, changes and lines."""

import functools
import linecache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.collectives import programs, run, scheduler
from labkit.kinds import LabError


def keep(comm, buffer):
    """Do nothing."""


def scaled(comm, buffer, factor, add=0):
    buffer *= factor
    buffer += add


def pass_on(comm, buffer):
    """Rank 0's first half to 1, and on to 2."""
    half = buffer[: buffer.size // 2]
    if comm.rank:
        comm.Recv(half, comm.rank - 1)
    if comm.rank + 1 < comm.size:
        comm.Send(half, comm.rank + 1)


def after(trace, rank, step):
    """The buffer of a rank after a step, from what it was given and its states."""
    buffer = trace.inputs[rank].reshape(-1).copy()
    for state in trace.states:
        if state.rank == rank and state.step <= step:
            data = np.frombuffer(state.data, buffer.dtype)
            buffer[state.start : state.start + len(data)] = data
    return buffer.reshape(trace.inputs[rank].shape)


def test_inputs_are_copied_may_differ_in_shape_or_are_made():
    given_ = [np.zeros(2), np.zeros(2)]
    run(scaled, given_, factor=1, add=5)
    assert given_[0].tolist() == [0, 0]
    shapes = [out.shape for out in run(keep, [np.zeros(2), np.zeros((3, 1)), [1.0]]).outputs]
    assert shapes == [(2,), (3, 1), (1,)]
    assert [row.tolist() for row in run(keep, ranks=2).inputs] == [[1, 2], [3, 4]]


def test_options_go_to_the_program_and_into_the_trace():
    trace = run(functools.partial(scaled, add=1), ranks=1, factor=3)
    assert trace.outputs[0].tolist() == [4]
    assert (trace.program, trace.options) == ("scaled", {"factor": "3", "add": "1"})
    assert run(programs.reduce, ranks=2).op == "sum"
    assert run(programs.reduce, ranks=2, op="max").op == "max"
    assert run(keep, ranks=2).op is None


@pytest.mark.parametrize(
    ("program", "arguments", "words"),
    [
        (keep, {}, "ranks="),
        (keep, {"ranks": 20_000}, "256 ranks.*20,000"),
        (keep, {"ranks": 1, "way": "up"}, "keep .*way"),
        (scaled, {"ranks": 1}, "scaled .*factor"),
    ],
)
def test_a_wrong_argument_is_explained(program, arguments, words):
    with pytest.raises(LabError, match=words):
        run(program, **arguments)


def test_a_program_that_returns_its_result_learns_that_programs_work_in_place():
    assert "in place" in run(lambda comm, buffer: buffer + 1, ranks=2).note


def test_a_program_that_uses_the_world_of_mpi_is_told_to_use_its_comm():
    mpi = pytest.importorskip("mpi4py.MPI")

    def program(comm, buffer):
        buffer += mpi.COMM_WORLD.rank

    line = program.__code__.co_firstlineno + 1
    with pytest.raises(LabError, match=rf"COMM_WORLD \(line {line}\).* use the comm that"):
        run(program, ranks=2)
    assert mpi.COMM_WORLD.rank == 0


@pytest.mark.parametrize("name", programs.MEANING)
def test_a_step_is_a_tick_of_the_clock_on_which_each_message_takes_one(name):
    trace = run(getattr(programs, name), ranks=5)
    timed = trace.timed(latency=1.0, bandwidth=1e30)
    assert trace.steps == timed.seconds
    assert [message.step for message in trace.messages] == list(timed.ends)


def test_a_rank_sends_one_message_and_receives_one_in_a_step():
    def everyone_to_everyone(comm, buffer):
        mine = buffer.copy()
        requests = [comm.Irecv(buffer[i : i + 1], i) for i in range(comm.size)]
        requests += [comm.Isend(mine[:1], i) for i in range(comm.size)]
        type(requests[0]).Waitall(requests)

    trace = run(everyone_to_everyone, ranks=6)
    assert len({(m.source, m.step) for m in trace.messages}) == len(trace.messages) == 36
    assert len({(m.dest, m.step) for m in trace.messages}) == 36


def test_a_barrier_brings_all_ranks_to_the_latest_step():
    def program(comm, buffer):
        for _ in range(2):
            if comm.rank < 2:
                comm.Sendrecv(buffer.copy(), 1 - comm.rank, recvbuf=buffer, source=1 - comm.rank)
            comm.Barrier()
        comm.Sendrecv(buffer.copy(), comm.rank, recvbuf=buffer, source=comm.rank)

    trace = run(program, ranks=3)
    assert {(m.source, m.step) for m in trace.messages[4:]} == {(0, 3), (1, 3), (2, 3)}
    barriers = sorted((c.barrier, c.step) for c in trace.calls if c.name == "Barrier")
    assert barriers == [(0, 1)] * 3 + [(1, 2)] * 3


def test_a_send_waits_for_its_receiver_unless_small_ones_need_not():
    def program(comm, buffer):
        mine = buffer.copy()
        comm.Send(mine, 1 - comm.rank)
        mine[:] = 0  # it has been copied
        comm.Recv(buffer, 1 - comm.rank)

    trace = run(program, [[1.0, 2.0], [3.0, 4.0]], eager=16)
    assert [output.tolist() for output in trace.outputs] == [[3, 4], [1, 2]]
    sends = [call for call in trace.calls if call.name == "Send"]
    assert [(call.step, call.awaits) for call in sends] == [(0, ()), (0, ())]


def test_calls_and_messages_say_what_went_where():
    def program(comm, buffer):
        flat = buffer.reshape(-1)
        if comm.rank == 0:
            comm.Isend(flat[1:3], 1, tag=4).Wait()
        else:
            comm.Recv(flat[2:], 0)

    trace = run(program, [np.arange(6.0).reshape(2, 3)] * 2)
    (message,) = trace.messages
    assert (message.sent_from, message.into, message.count) == ((1, 3), (2, 4), 2)
    assert (message.nbytes, message.tag, message.step) == (16, 4, 1)
    found = {call.name: (call.begins, call.awaits, call.step) for call in trace.calls}
    assert found == {"Isend": ((0,), (), 0), "Wait": ((), (0,), 1), "Recv": ((0,), (0,), 1)}
    assert trace.calls[message.sent_by].name == "Isend"
    assert trace.calls[message.received_by].name == "Recv"


@settings(max_examples=40)
@given(st.data())
def test_any_exchange_arrives_whole_and_its_states_lead_to_the_end(data):
    ranks = data.draw(st.integers(1, 7))
    kind = data.draw(st.sampled_from(["u1", "i2", "f4", "c16", "f8", "bool"]))
    size = data.draw(st.integers(0, 40))
    rounds = data.draw(st.lists(st.permutations(range(ranks)), max_size=4))

    def permute(comm, buffer):
        for targets in rounds:
            source = targets.index(comm.rank)
            got = np.empty_like(buffer)
            request = comm.Irecv(got, source, tag=3)
            comm.Send(buffer, targets[comm.rank], tag=3)
            request.Wait()
            buffer[:] = got

    random = np.random.default_rng(size)
    inputs = [random.integers(0, 99, size).astype(kind) for _ in range(ranks)]
    trace = run(permute, inputs)
    expected = list(inputs)
    for targets in rounds:
        expected = [expected[targets.index(rank)] for rank in range(ranks)]
    for rank in range(ranks):
        assert np.array_equal(trace.outputs[rank], expected[rank])
        assert np.array_equal(after(trace, rank, trace.steps), expected[rank])
    assert trace.messages_sent == (len(rounds),) * ranks
    assert trace.bytes_sent == trace.bytes_received == (len(rounds) * inputs[0].nbytes,) * ranks
    assert trace == run(permute, inputs)


def test_a_run_that_changes_too_much_says_that_it_kept_no_states(monkeypatch):
    monkeypatch.setattr(scheduler, "KEEP", 15)
    large = run(pass_on, np.arange(8.0).reshape(2, 4)[::-1])
    assert (large.complete, large.states) == (False, ())
    assert run(pass_on, ranks=2).complete is True


# Which line of the program a call comes from.


def send_round(comm, buffer):
    right = (comm.rank + 1) % comm.size
    pass_to(comm, buffer, right)


def pass_to(comm, buffer, right):
    scratch = np.empty_like(buffer)
    [comm.Sendrecv(buffer, right, recvbuf=scratch) for _ in range(1)]
    buffer[:] = scratch


def test_a_call_knows_its_function_and_line():
    trace = run(send_round, ranks=2)
    (source,) = trace.sources
    assert (source.name, source.first) == ("pass_to", pass_to.__code__.co_firstlineno)
    assert source.text.startswith("def pass_to(comm")
    assert {call.place.line for call in trace.calls} == {3}


def written(text, file="<no file>"):
    names = {}
    exec(compile(text, file, "exec"), names)
    return names["program"]


def test_a_cell_of_a_notebook_is_read_as_it_was_typed():
    text = "\n\ndef program(comm, buffer):\n    comm.Barrier()\n"
    linecache.cache["<cell 3>"] = (len(text), None, text.splitlines(keepends=True), "<cell 3>")
    trace = run(written(text, "<cell 3>"), ranks=2)
    assert (trace.sources[0].first, trace.calls[0].place.line) == (3, 2)


LIBRARY = {
    "Bcast": (lambda c, b: c.Bcast(b), "broadcast", "broadcast"),
    "Gather": (lambda c, b: c.Gather(b[c.rank : c.rank + 1].copy(), b), "gather", "gather"),
    "Alltoall": (lambda c, b: c.Alltoall(b.copy(), b), "all_to_all", "all_to_all"),
    "Allreduce": (
        lambda c, b: c.Allreduce(b.copy(), b), "all_reduce", "rabenseifner_all_reduce",
    ),
    "Reduce_scatter_block": (
        lambda c, b: c.Reduce_scatter_block(b.copy(), b[c.rank : c.rank + 1]),
        "reduce_scatter", "reduce_scatter",
    ),
}  # fmt: skip


@pytest.mark.parametrize("call", LIBRARY)
def test_a_call_of_the_library_is_proved_and_sends_what_its_program_sends(call):
    ranks, (program, meaning, same) = 5, LIBRARY[call]
    trace, own = run(program, ranks=ranks), run(getattr(programs, same), ranks=ranks)
    assert trace.check(meaning)
    assert trace.steps == own.steps
    assert trace.bytes_sent == own.bytes_sent
    assert {one.library for one in trace.calls} == {(f"comm.{call}", ranks)}
    assert {one.library for one in own.calls} <= {(f"programs.{same}", ranks)}
    assert len({one.place for one in trace.calls}) == 1  # the program's line
