"""Ranks in one process: the same trace each time, steps as published, and every change kept."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.collectives import run


def ring_shift(comm, buffer, times=1):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for _ in range(times):
        scratch = np.empty_like(buffer)
        comm.Sendrecv(buffer, right, recvbuf=scratch, source=left)
        buffer += scratch


def star_broadcast(comm, buffer):
    if comm.rank == 0:
        for other in range(1, comm.size):
            comm.Send(buffer, other)
    else:
        comm.Recv(buffer, 0)


def tree_broadcast(comm, buffer):
    reach = 1
    while reach < comm.size:
        if comm.rank < reach and comm.rank + reach < comm.size:
            comm.Send(buffer, comm.rank + reach)
        elif reach <= comm.rank < 2 * reach:
            comm.Recv(buffer, comm.rank - reach)
        reach *= 2


def after(trace, rank, step):
    """The buffer of a rank after a step, from what it was given and its states."""
    buffer = trace.inputs[rank].reshape(-1).copy()
    for state in trace.states:
        if state.rank == rank and state.step <= step:
            data = np.frombuffer(state.data, buffer.dtype)
            buffer[state.start : state.start + len(data)] = data
    return buffer.reshape(trace.inputs[rank].shape)


@pytest.mark.parametrize("ranks", range(1, 18))
def test_steps_are_as_published(ranks):
    assert run(star_broadcast, ranks=ranks).steps == ranks - 1
    assert run(tree_broadcast, ranks=ranks).steps == math.ceil(math.log2(ranks))
    assert run(ring_shift, ranks=ranks, times=ranks - 1).steps == ranks - 1


def test_a_rank_sends_one_message_and_receives_one_in_a_step():
    def everyone_to_everyone(comm, buffer):
        requests = [comm.Irecv(buffer[i : i + 1], i) for i in range(comm.size)]
        requests += [comm.Isend(buffer[comm.rank :][:1].copy(), i) for i in range(comm.size)]
        type(requests[0]).Waitall(requests)

    trace = run(everyone_to_everyone, ranks=6)
    assert len({(m.source, m.step) for m in trace.messages}) == len(trace.messages) == 36
    assert len({(m.dest, m.step) for m in trace.messages}) == 36


def test_a_barrier_brings_all_clocks_to_the_latest():
    def program(comm, buffer):
        if comm.rank < 2:
            comm.Sendrecv(buffer.copy(), 1 - comm.rank, recvbuf=buffer, source=1 - comm.rank)
        comm.Barrier()
        comm.Sendrecv(buffer.copy(), comm.rank, recvbuf=buffer, source=comm.rank)

    trace = run(program, ranks=3)
    assert {(m.source, m.step) for m in trace.messages[2:]} == {(0, 2), (1, 2), (2, 2)}
    barriers = [call for call in trace.calls if call.name == "Barrier"]
    assert [(call.barrier, call.step, call.awaits) for call in barriers] == [(0, 1, ())] * 3


def test_a_send_waits_for_its_receiver_unless_small_ones_need_not():
    def program(comm, buffer):
        comm.Send(buffer.copy(), 1 - comm.rank)
        comm.Recv(buffer, 1 - comm.rank)

    trace = run(program, [[1.0, 2.0], [3.0, 4.0]], eager=16)
    assert [output.tolist() for output in trace.outputs] == [[3, 4], [1, 2]]
    sends = [call for call in trace.calls if call.name == "Send"]
    assert [(call.step, call.awaits) for call in sends] == [(0, ()), (0, ())]
    assert trace.steps == 1


def test_a_message_says_where_it_was_cut_and_where_it_went():
    def program(comm, buffer):
        flat = buffer.reshape(-1)
        if comm.rank == 0:
            comm.Send(flat[1:3], 1)
            comm.Send(flat[4:4], 1)
        else:
            comm.Recv(flat[2:], 0)
            comm.Recv(np.empty(0), 0)

    trace = run(program, [np.arange(6.0).reshape(2, 3)] * 2)
    assert [(m.sent_from, m.into, m.count, m.nbytes) for m in trace.messages] == [
        ((1, 3), (2, 4), 2, 16),
        ((0, 0), None, 0, 0),
    ]


def test_calls_say_what_they_post_and_what_they_wait_for():
    def program(comm, buffer):
        if comm.rank == 0:
            request = comm.Isend(buffer, 1)
            request.Wait()
        else:
            comm.Recv(buffer, 0)

    trace = run(program, ranks=2)
    found = {call.name: (call.begins, call.awaits, call.step) for call in trace.calls}
    assert found == {"Isend": ((0,), (), 0), "Wait": ((), (0,), 1), "Recv": ((0,), (0,), 1)}
    message = trace.messages[0]
    assert trace.calls[message.sent_by].name == "Isend"
    assert trace.calls[message.received_by].name == "Recv"
    assert [call.number for call in trace.calls] == [0, 1, 2]


def test_what_a_rank_adds_belongs_to_the_step_that_brought_it():
    trace = run(ring_shift, [[1.0, 5.0], [2.0, 5.0]])
    assert after(trace, 0, 0).tolist() == [1, 5]
    assert after(trace, 0, 1).tolist() == [3, 10]


def test_a_nan_that_stays_is_no_change_and_one_that_comes_is():
    trace = run(tree_broadcast, [[np.nan, 1.0], [np.nan, np.nan]])
    assert [(s.rank, s.start, len(s.data)) for s in trace.states] == [(1, 1, 8)]


@settings(max_examples=60, deadline=None)
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
    assert trace.bytes_sent == trace.bytes_received == (len(rounds) * inputs[0].nbytes,) * ranks
    assert trace == run(permute, inputs)


def test_sixty_four_ranks_are_no_more_than_sixty_four_small_stacks():
    trace = run(ring_shift, ranks=64, times=3)
    assert trace.messages_sent == (3,) * 64
