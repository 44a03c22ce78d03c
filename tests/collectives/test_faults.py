"""A program that cannot go on ends at once, with a sentence that names ranks, calls and lines."""

import contextlib
import re

import numpy as np
import pytest

from labkit.collectives import Request, run, simulator
from labkit.kinds import LabError

PAIR = [[1.0, 2.0], [3.0, 4.0]]


def said(program, inputs=PAIR, **options):
    with pytest.raises(LabError) as caught:
        run(program, inputs, **options)
    return re.sub(r"line \d+", "line _", str(caught.value))


def test_two_ranks_that_both_receive_first():
    def program(comm, buffer):
        comm.Recv(buffer, 1 - comm.rank)
        comm.Send(buffer, 1 - comm.rank)

    assert said(program) == (
        "Deadlock: rank 0 waits in Recv from rank 1 (line _), rank 1 waits in Recv from rank 0 "
        "(line _). Each waits for what another sends only afterwards: let one of the ranks send "
        "first."
    )


def test_the_line_is_the_one_of_the_call():
    def program(comm, buffer):
        comm.Recv(buffer, 1 - comm.rank)

    line = program.__code__.co_firstlineno + 1
    with pytest.raises(LabError, match=rf"rank 1 waits in Recv from rank 0 \(line {line}\)"):
        run(program, PAIR)


def test_two_ranks_that_both_send_first():
    def program(comm, buffer):
        comm.Send(buffer, 1 - comm.rank)
        comm.Recv(buffer, 1 - comm.rank)

    assert "Every Send waits for its receiver" in said(program)


def test_a_ring_of_waits_is_named_without_those_who_only_wait_for_it():
    def program(comm, buffer):
        comm.Recv(buffer, {0: 1, 1: 2, 2: 3, 3: 1}[comm.rank])

    sentence = said(program, [[0.0]] * 4)
    assert sentence.startswith("Deadlock: rank 1 waits in Recv from rank 2 (line _), rank 2")
    assert "rank 0" not in sentence


def test_a_long_ring_is_named_in_short():
    def program(comm, buffer):
        comm.Recv(buffer, (comm.rank + 1) % comm.size)

    sentence = said(program, np.zeros((40, 1)))
    assert "rank 2 waits in Recv from rank 3 (line _), and so on for 36 more ranks, rank 39" in (
        sentence
    )


def test_a_wait_for_a_rank_that_has_ended():
    def program(comm, buffer):
        if comm.rank == 0:
            comm.Irecv(buffer, 1).Wait()

    assert said(program) == (
        "Deadlock: rank 0 waits in Wait (line _) for its Irecv from rank 1 (line _), and rank 1 "
        "has ended. Every receive needs a send, and every send a receive."
    )


def test_of_a_row_of_waits_the_cause_is_named():
    def program(comm, buffer):
        if comm.rank < 2:
            comm.Recv(buffer, comm.rank + 1)

    assert said(program, [[0.0]] * 3).startswith(
        "Deadlock: rank 1 waits in Recv from rank 2 (line _), and rank 2 has ended."
    )


def test_a_wait_for_anyone_when_all_have_ended():
    def program(comm, buffer):
        if comm.rank == 0:
            comm.Recv(buffer)

    assert said(program).startswith(
        "Deadlock: rank 0 waits in Recv from any rank (line _), and all other ranks have ended."
    )


def test_a_message_with_another_tag_is_named():
    def program(comm, buffer):
        if comm.rank == 0:
            comm.Send(buffer, 1, tag=3)
        else:
            comm.Recv(buffer, 0, tag=5)

    assert said(program).endswith(
        "Rank 0 offers rank 1 a message with tag 3, and rank 1 takes only one with tag 5: give "
        "both the same tag."
    )


def test_a_barrier_that_not_all_come_to():
    def program(comm, buffer):
        if comm.rank == 0:
            comm.Barrier()
        else:
            comm.Recv(buffer, 0)

    assert said(program).startswith(
        "Deadlock: rank 0 waits in Barrier for rank 1 (line _), rank 1 waits in Recv from rank 0"
    )


def test_a_send_to_itself():
    def program(comm, buffer):
        comm.Send(buffer, comm.rank)

    assert "A rank need not send to itself" in said(program)


def test_a_test_that_nothing_will_ever_answer():
    def program(comm, buffer):
        request = comm.Irecv(buffer, 1 - comm.rank)
        while not request.Test():
            pass

    assert "rank 0 waits in Test (line _) for its Irecv from rank 1" in said(program)


def test_a_message_that_does_not_fit():
    def program(comm, buffer):
        if comm.rank == 0:
            comm.Send(buffer, 1)
        else:
            comm.Recv(buffer[:1], 0)

    assert said(program).startswith(
        "Rank 0's Send to rank 1 (line _) holds 2 elements, and rank 1's Recv from rank 0 "
        "(line _) holds 1 element. A message must not be longer"
    )


def test_two_ends_with_different_numbers():
    def program(comm, buffer):
        if comm.rank == 0:
            comm.Send(buffer.astype("f4"), 1)
        else:
            comm.Recv(buffer, 0)

    assert "holds float32, and rank 1's Recv from rank 0 (line _) holds float64" in said(program)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda comm, b: comm.Send(b, 2),
            "Rank 0's Send (line _) names rank 2. There are ranks 0 to 1",
        ),
        (lambda comm, b: comm.Recv(b, -1), "Rank 0's Recv (line _) names rank -1."),
        (lambda comm, b: comm.Send(b, 0.5), "divide with //"),
        (lambda comm, b: comm.Send(b, 1, tag=-3), "has tag=-3. A tag is a whole number"),
        (lambda comm, b: comm.Recv(b, 1, tag="x"), "has tag='x'"),
        (lambda comm, b: comm.Send(b[::2], 1), "an array of shape (2,) that is not in one"),
        (lambda comm, b: comm.Recv(b[::2], 1), "np.ascontiguousarray"),
        (lambda comm, b: comm.Recv(np.float64(1), 1), "cannot write into this array"),
        (lambda comm, b: comm.Recv(np.frombuffer(b"12345678"), 1), "read-only"),
        (lambda comm, b: comm.Send([1.0, 2.0], 1), "needs a numpy array and was given a list"),
        (lambda comm, b: comm.Send(3.0, 1), "was given a float"),
        (lambda comm, b: comm.Sendrecv(b, 1), "needs a numpy array and was given None"),
        (lambda comm, b: comm.Send(np.array(["a"]), 1), "an array of <U1"),
        (lambda comm, b: comm.Send([b, 5], 1), "asks for 5 elements of an array that has 4"),
        (lambda comm, b: comm.Sendrecv(b, 1, 0, b, 1), "would receive into the memory that it"),
        (lambda comm, b: comm.Isend(b, 1).wait(), "A request has no wait. There are Wait"),
    ],
)
def test_a_call_that_cannot_be(call, sentence):
    assert sentence in said(lambda comm, b: comm.rank or call(comm, b), np.zeros((2, 4)))


def test_a_message_that_nobody_receives():
    def program(comm, buffer):
        if comm.rank == 0:
            comm.Isend(buffer, 1, tag=4)

    assert said(program).startswith(
        "Rank 1 never receives the message of rank 0's Isend to rank 1 (line _) with tag 4."
    )


def test_a_small_message_that_nobody_receives():
    def program(comm, buffer):
        if comm.rank == 0:
            comm.Send(buffer, 1)

    assert "never receives the message of rank 0's Send to rank 1" in said(program, eager=100)


def test_a_receive_that_nothing_comes_for():
    def program(comm, buffer):
        if comm.rank == 0:
            comm.Irecv(buffer, 1)

    assert "No message ever comes for rank 0's Irecv from rank 1" in said(program)


def test_a_request_that_is_never_waited_for():
    def program(comm, buffer):
        if comm.rank == 0:
            comm.Isend(buffer, 1)
        else:
            comm.Recv(buffer, 0)

    assert said(program).startswith(
        "Rank 0 never waits for its Isend to rank 1 (line _). Keep the request that Isend gives"
    )


def test_data_that_change_while_they_are_sent():
    def program(comm, buffer):
        if comm.rank == 0:
            request = comm.Isend(buffer, 1)
            buffer[0] = 9
            request.Wait()
        else:
            comm.Recv(buffer, 0)

    assert said(program).startswith(
        "Rank 0 changed what its Isend to rank 1 (line _) sends, before"
    )


def test_a_buffer_that_is_written_while_it_receives():
    def program(comm, buffer):
        if comm.rank == 1:
            comm.Send(buffer, 0)
        else:
            request = comm.Irecv(buffer, 1)
            buffer += 1
            Request.Waitall([request])

    assert "Rank 0 changed what its Irecv from rank 1 (line _) receives into" in said(program)


def test_the_exception_of_a_rank_with_its_line():
    def program(comm, buffer):
        if comm.rank == 1:
            buffer[comm.size + 1] = 0
        comm.Barrier()

    with pytest.raises(LabError) as caught:
        run(program, PAIR)
    line = program.__code__.co_firstlineno + 2
    assert str(caught.value) == (
        "Rank 1 raised IndexError: index 3 is out of bounds for axis 0 with size 2 "
        f"(line {line}: buffer[comm.size + 1] = 0)."
    )
    assert isinstance(caught.value.__cause__, IndexError)


def test_a_rank_that_leaves_the_interpreter():
    assert "Rank 0 raised SystemExit: 3" in said(lambda comm, buffer: exit(3))


def test_a_fault_cannot_be_swallowed():
    def program(comm, buffer):
        with contextlib.suppress(LabError):
            comm.Send(buffer, 7)
        comm.Barrier()

    assert "names rank 7" in said(program)


def test_a_talk_without_end(monkeypatch):
    monkeypatch.setattr(simulator, "CALLS", 1000)

    def program(comm, buffer):
        while True:
            comm.Sendrecv(buffer, 1 - comm.rank, recvbuf=np.empty(2), source=1 - comm.rank)

    assert "The ranks made 1,000 calls and had not ended; the last was rank" in said(program)


def test_a_loop_without_calls_ends_at_the_deadline():
    def program(comm, buffer):
        while True:
            buffer[0] += 1

    assert said(program, deadline=0.2).startswith(
        "The program had not ended after 0.2 s; it was at line _: "
    )


def test_ranks_that_were_left_waiting_are_ended_with_their_clean_up():
    closed = []

    def program(comm, buffer):
        try:
            comm.Recv(buffer, 1 - comm.rank)
        finally:
            closed.append(comm.rank)

    said(program)
    assert sorted(closed) == [0, 1]


def test_an_interrupt_is_the_users_own():
    def program(comm, buffer):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(program, PAIR)
