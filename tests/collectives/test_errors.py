"""A program that cannot go on ends at once, with a sentence that names ranks, calls and lines."""

import contextlib
import re
import subprocess
import sys
import threading

import numpy as np
import pytest

from labkit import time_limit
from labkit.collectives import Request, run, simulator
from labkit.kinds import LabError

PAIR = [[1.0, 2.0], [3.0, 4.0]]


def message(program, inputs=PAIR, **options):
    with pytest.raises(LabError) as caught:
        run(program, inputs, **options)
    return re.sub(r"line \d+", "line _", str(caught.value))


# Deadlocks.


def test_two_ranks_that_both_receive_first():
    def program(comm, buffer):
        comm.Recv(buffer, 1 - comm.rank)
        comm.Send(buffer, 1 - comm.rank)

    assert message(program) == (
        "Deadlock: rank 0 waits in Recv from rank 1 (line _), rank 1 waits in Recv from rank 0 "
        "(line _). Each waits for what another sends only afterwards: let one of the ranks send "
        "first."
    )
    line = program.__code__.co_firstlineno + 1
    with pytest.raises(LabError, match=rf"rank 1 waits in Recv from rank 0 \(line {line}\)"):
        run(program, PAIR)


def test_two_ranks_that_both_send_first():
    def program(comm, buffer):
        comm.Send(buffer, 1 - comm.rank)
        comm.Recv(buffer, 1 - comm.rank)

    assert "Every Send waits for its receiver" in message(program)


def test_a_ring_of_waits_is_named_without_those_who_only_wait_for_it():
    def program(comm, buffer):
        comm.Recv(buffer, {0: 1, 1: 2, 2: 3, 3: 1}[comm.rank])

    text = message(program, [[0.0]] * 4)
    assert text.startswith("Deadlock: rank 1 waits in Recv from rank 2 (line _), rank 2")
    assert "rank 0" not in text


def test_a_long_ring_is_named_in_short():
    def program(comm, buffer):
        comm.Recv(buffer, (comm.rank + 1) % comm.size)

    text = message(program, np.zeros((40, 1)))
    assert "rank 2 waits in Recv from rank 3 (line _), and so on for 36 more ranks, rank 39" in text


def test_a_wait_for_a_rank_that_has_ended():
    def program(comm, buffer):
        if comm.rank == 0:
            comm.Irecv(buffer, 1).Wait()

    assert message(program) == (
        "Deadlock: rank 0 waits in Wait (line _) for its Irecv from rank 1 (line _), and rank 1 "
        "has ended. Every receive needs a send, and every send a receive."
    )


def test_of_a_row_of_waits_the_cause_is_named():
    def program(comm, buffer):
        if comm.rank < 2:
            comm.Recv(buffer, comm.rank + 1)

    cause = "Deadlock: rank 1 waits in Recv from rank 2 (line _), and rank 2 has ended."
    assert message(program, [[0.0]] * 3).startswith(cause)


def test_a_wait_for_anyone_when_all_have_ended():
    text = message(lambda comm, buffer: comm.rank or comm.Recv(buffer))
    assert "rank 0 waits in Recv from any rank (line _), and all other ranks have ended" in text


def test_a_message_with_another_tag_is_named():
    def program(comm, buffer):
        if comm.rank == 0:
            comm.Send(buffer, 1, tag=3)
        else:
            comm.Recv(buffer, 0, tag=5)

    assert "a message with tag 3, and rank 1 takes only one with tag 5" in message(program)


def test_a_barrier_that_not_all_come_to():
    def program(comm, buffer):
        if comm.rank == 0:
            comm.Barrier()
        else:
            comm.Recv(buffer, 0)

    assert message(program).startswith(
        "Deadlock: rank 0 waits in Barrier for rank 1 (line _), rank 1 waits in Recv from rank 0"
    )


def test_a_send_to_itself_and_a_test_that_nothing_answers():
    def polls(comm, buffer):
        request = comm.Irecv(buffer, 1 - comm.rank)
        while not request.Test():
            pass

    assert "need not send to itself" in message(lambda comm, b: comm.Send(b, comm.rank))
    assert "rank 0 waits in Test (line _) for its Irecv from rank 1" in message(polls)


# Mistakes in a call or in a message.


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda comm, b: comm.Send(b, 2), "Rank 0's Send (line _) names rank 2. There are ranks"),
        (lambda comm, b: comm.Recv(b, -1), "Rank 0's Recv (line _) names rank -1."),
        (lambda comm, b: comm.Send(b, 0.5), "divide with //"),
        (lambda comm, b: comm.Send(b, 1, tag=-3), "tag must be a whole number ≥ 0, got -3"),
        (lambda comm, b: comm.Recv(b, 1, tag="x"), "got 'x'"),
        (lambda comm, b: comm.Send(b[::2], 1), "shape (2,) that is not in one stretch"),
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
def test_a_wrong_call_is_explained(call, words):
    assert words in message(lambda comm, b: comm.rank or call(comm, b), np.zeros((2, 4)))


def test_the_two_ends_of_a_message_must_fit():
    def too_long(comm, buffer):
        comm.Send(buffer, 1) if comm.rank == 0 else comm.Recv(buffer[:1], 0)

    def converts(comm, buffer):
        comm.Send(buffer.astype("f4"), 1) if comm.rank == 0 else comm.Recv(buffer, 0)

    assert message(too_long).startswith(
        "Rank 0's Send to rank 1 (line _) holds 2 elements, and rank 1's Recv from rank 0 "
        "(line _) holds 1 element. A message must not be longer"
    )
    assert "holds float32, and rank 1's Recv from rank 0 (line _) holds float64" in (
        message(converts)
    )


def test_messages_and_requests_that_are_left_over():
    def on_rank_0(call):
        return lambda comm, buffer: call(comm, buffer) if comm.rank == 0 else None

    def never_waits(comm, buffer):
        comm.Isend(buffer, 1) if comm.rank == 0 else comm.Recv(buffer, 0)

    unreceived = message(on_rank_0(lambda comm, b: comm.Isend(b, 1, tag=4)))
    assert unreceived.startswith(
        "Rank 1 never receives the message of rank 0's Isend to rank 1 (line _) with tag 4."
    )
    assert "never receives the message of rank 0's Send" in (
        message(on_rank_0(lambda comm, b: comm.Send(b, 1)), eager=100)
    )
    assert "No message ever comes for rank 0's Irecv from rank 1" in (
        message(on_rank_0(lambda comm, b: comm.Irecv(b, 1)))
    )
    assert message(never_waits).startswith(
        "Rank 0 never waits for its Isend to rank 1 (line _). Keep the request that Isend gives"
    )


# Buffers that belong to a message under way.


def test_data_that_change_while_they_are_sent():
    def program(comm, buffer):
        if comm.rank == 0:
            request = comm.Isend(buffer, 1)
            buffer[0] = 9
            request.Wait()
        else:
            comm.Recv(buffer, 0)

    words = "Rank 0 changed what its Isend to rank 1 (line _) sends, before"
    assert message(program).startswith(words)


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "i4", "u1", "c16"])
def test_a_buffer_that_is_written_while_it_receives(dtype):
    def program(comm, buffer):
        if comm.rank == 1:
            comm.Send(buffer, 0)
        else:
            request = comm.Irecv(buffer, 1)
            buffer += 1
            Request.Waitall([request])

    inputs = np.array(PAIR).astype(dtype)
    assert "Rank 0 changed what its Irecv from rank 1 (line _) receives into" in (
        message(program, inputs)
    )


def reads_early(comm, buffer, use):
    other, into = 1 - comm.rank, np.empty_like(buffer)
    request = comm.Irecv(into, other)
    total = use(buffer, into)
    comm.Send(buffer, other) if comm.rank else comm.Isend(buffer, other).Wait()
    request.Wait()
    buffer[:] = total
    comm.Barrier()


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("dtype", ["f8", "f4", "c8", "c16"])
@pytest.mark.parametrize(
    "use", [np.add, np.maximum, lambda a, b: -(a * b) / 2, lambda a, b: b.copy()]
)
def test_a_receive_that_is_read_before_wait_is_named(dtype, use):
    words = "read what its Irecv from rank 1 (line _) receives into, before it had waited"
    text = message(reads_early, np.array(PAIR).astype(dtype), use=use)
    assert words in text.replace("from rank 0", "from rank 1")


def test_whole_numbers_that_are_read_before_wait_spoil_the_result():
    trace = run(reads_early, np.array(PAIR, dtype="i8"), use=np.add)
    assert not trace.check("all_reduce")


def test_a_receive_that_is_waited_for_may_be_read():
    def program(comm, buffer):
        into = np.empty_like(buffer)
        request = comm.Irecv(into, 1 - comm.rank)
        comm.Isend(buffer.copy(), 1 - comm.rank).Wait()
        request.Wait()
        buffer += into

    assert run(program, [[np.nan, 1.0], [2.0, 3.0]]).outputs[0][1] == 4.0


# Programs that raise, do not end, or swallow what they are told.


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
    assert "Rank 0 raised SystemExit: 3" in message(lambda comm, buffer: exit(3))


def test_an_interrupt_is_the_users_own():
    def program(comm, buffer):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(program, PAIR)


def test_a_program_that_swallows_its_error_ends_with_it():
    def quietly(comm, buffer):
        with contextlib.suppress(LabError):
            comm.Send(buffer, 7)
        comm.Barrier()

    def for_ever(comm, buffer):
        while True:
            try:
                comm.Send(buffer, 7)
            except:  # noqa: E722
                buffer += 1

    assert "names rank 7" in message(quietly)
    assert "names rank 7" in message(for_ever)


def test_a_deadlock_is_told_whatever_the_program_does_about_it():
    closed = []

    def swallows(comm, buffer):
        while True:
            try:
                comm.Recv(buffer, 1 - comm.rank)
            except:  # noqa: E722
                buffer += 1

    def calls_in_clean_up(comm, buffer):
        try:
            comm.Recv(buffer, 1 - comm.rank)
        finally:
            closed.append(comm.rank)
            comm.Barrier()

    for program in (swallows, calls_in_clean_up):
        assert message(program).startswith("Deadlock: rank 0 waits in Recv from rank 1")
    assert sorted(closed) == [0, 1]


def test_a_clean_up_that_does_not_end_is_ended(monkeypatch):
    monkeypatch.setattr(simulator, "CLEAN_UP", 0.1)

    def program(comm, buffer):
        try:
            comm.Recv(buffer, 1 - comm.rank)
        finally:
            while comm.rank == 0:
                buffer += 1

    assert message(program).startswith("Deadlock:")


def test_loops_without_end_are_ended(monkeypatch):
    monkeypatch.setattr(simulator, "CALLS", 1000)
    monkeypatch.setattr(time_limit, "AGAIN", 0.05)

    def communicates(comm, buffer):
        while True:
            comm.Sendrecv(buffer, 1 - comm.rank, recvbuf=np.empty(2), source=1 - comm.rank)

    def computes(comm, buffer):
        try:
            while True:
                buffer += 1
        except BaseException:  # noqa: BLE001
            while True:
                buffer += 1

    assert "made 1,000 calls and had not ended; the last was rank" in message(communicates)
    assert message(computes, deadline=0.1).startswith(
        "The program had not ended after 0.1 s; it was at line _: "
    )


def test_a_communicator_is_its_own_ranks():
    shared = []

    def in_a_thread(comm, buffer):
        def quiet():
            with pytest.raises(LabError):
                comm.Send(buffer, 1 - comm.rank)

        thread = threading.Thread(target=quiet)
        thread.start()
        thread.join()

    def of_another(comm, buffer):
        shared.append(comm)
        shared[0].Isend(buffer, 1)

    assert message(in_a_thread).startswith("Rank 0's Send was called from a thread, or by another")
    assert message(of_another).startswith("Rank 0's Isend was called from a thread, or by another")


TENSORFLOW = """
import numpy as np
import tensorflow as tf
from labkit.collectives import run
from labkit.kinds import LabError

def step(comm, buffer, inside):
    def exchange(gradient):
        received = np.empty_like(buffer)
        comm.Sendrecv(np.array(gradient), 1 - comm.rank, recvbuf=received, source=1 - comm.rank)
        return gradient + received

    @tf.custom_gradient
    def same(x):
        return tf.identity(x), exchange if inside else (lambda gradient: gradient)

    weights = tf.Variable(buffer)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(same(weights) * (comm.rank + 1))
    gradient = tape.gradient(loss, weights)
    buffer[:] = gradient if inside else exchange(gradient)

print(run(step, np.ones((2, 3)), inside=False).outputs[0])
try:
    run(step, np.ones((2, 3)), inside=True)
except LabError as error:
    print(error)
"""


def test_communication_inside_a_custom_gradient_is_refused_and_between_tapes_it_works():
    pytest.importorskip("tensorflow")
    done = subprocess.run(
        [sys.executable, "-c", TENSORFLOW], capture_output=True, text=True, timeout=120
    )
    between, refused = done.stdout.splitlines()
    assert between == "[3. 3. 3.]"
    assert re.match(r"Rank 0's Sendrecv \(line 10\) is inside .*communicate between tapes", refused)
