"""A program that cannot go on ends at once, with a sentence that names ranks, calls and lines."""

import re

import numpy as np
import pytest

from labkit import time_limit
from labkit.collectives import run
from labkit.collectives.communicator import Request
from labkit.kinds import LabError

PAIR = [[1.0, 2.0], [3.0, 4.0]]


def message(program, inputs=PAIR, **options):
    with pytest.raises(LabError) as caught:
        run(program, inputs, **options)
    return re.sub(r"line \d+", "line _", str(caught.value))


def by_rank(*parts):
    """A program of which each rank runs its own part; ranks without one do nothing."""
    return lambda comm, b: parts[comm.rank](comm, b) if comm.rank < len(parts) else None


# Deadlocks.


def both_receive(comm, buffer):
    comm.Recv(buffer, 1 - comm.rank)
    comm.Send(buffer, 1 - comm.rank)


def both_send(comm, buffer):
    comm.Send(buffer, 1 - comm.rank)
    comm.Recv(buffer, 1 - comm.rank)


def leads_to_a_ring(comm, buffer):
    comm.Recv(buffer, {0: 1, 1: 2, 2: 3, 3: 1}[comm.rank])


def waits_for_any(comm, buffer):
    Request.Waitany([comm.Irecv(buffer[i - 1 : i], i) for i in (1, 2)])


receives_from_1, receives_from_2 = (lambda c, b, r=r: c.Recv(b, r) for r in (1, 2))


@pytest.mark.parametrize(
    ("program", "ranks", "words"),
    [
        (both_receive, 2, "rank 0 .*Recv from rank 1 .*rank 1 .*Recv from rank 0 .*send first"),
        (both_send, 2, "rank 0 .*Send to rank 1 .*rank 1 .*Send to rank 0 .*receive first"),
        (leads_to_a_ring, 4, "rank 1 .*from rank 2 .*rank 2 .*from rank 3 .*rank 3 .*from rank 1"),
        (lambda c, b: c.Recv(b, (c.rank + 1) % 40), 40, "rank 0 .*36 more ranks, rank 39 .*rank 0"),
        (by_rank(receives_from_1, receives_from_2), 3, "^Deadlock: rank 1 .*rank 2 has ended"),
        (
            by_rank(lambda c, b: c.Send(b, 1, tag=3), lambda c, b: c.Recv(b, 0, tag=5)),
            2,
            "message with tag 3, and rank 1 .*tag 5",
        ),
        (
            by_rank(lambda c, b: c.Barrier(), lambda c, b: c.Recv(b, 0)),
            2,
            "rank 0 .*Barrier for rank 1 .*rank 1 .*Recv from rank 0",
        ),
        (by_rank(waits_for_any), 3, "rank 0 .*Waitany .*Irecv from rank 1 .*rank 1 has ended"),
        (
            lambda c, b: c.Bcast(b) if c.rank < 2 else c.Recv(b, 0) if c.rank == 2 else None,
            4,
            "ranks 0 and 1 wait in Bcast for ranks 2 and 3 .line _., and rank 3 has ended",
        ),
        (
            lambda c, b: c.Split(c.rank // 2).Recv(b, source=c.rank % 2),
            4,
            r"rank 0 .*Recv from rank 0 \(line _, in the communicator of ranks 0 and 1\)",
        ),
    ],
)
def test_a_deadlock_names_the_ranks_that_wait_and_their_calls(program, ranks, words):
    text = message(program, np.zeros((ranks, 2)))
    assert text.startswith("Deadlock: ")
    assert re.search(words, text)


@pytest.mark.parametrize(
    ("calls", "advice"),
    [
        ([lambda c, b: c.Send(b, 1), lambda c, b: c.Send(b, 0)], "receive first"),
        ([lambda c, b: c.Recv(b, 1), lambda c, b: c.Recv(b, 0)], "send first"),
        (
            [lambda c, b: c.Send(b, 1), lambda c, b: c.Recv(b, 2), lambda c, b: c.Recv(b, 0)],
            "each send meets its receive",
        ),
        ([lambda c, b: c.Recv(b, 1), lambda c, b: None], "Every receive needs a send"),
        ([lambda c, b: c.Barrier(), lambda c, b: c.Recv(b, 0)], "has to come to its Barrier"),
    ],
)
def test_the_advice_is_for_the_calls_that_wait(calls, advice):
    assert advice in message(by_rank(*calls), np.zeros((len(calls), 2)))


def test_a_deadlock_names_the_lines_and_no_rank_that_only_waits_for_it():
    line = both_receive.__code__.co_firstlineno + 1
    with pytest.raises(LabError, match=rf"rank 1 waits in Recv from rank 0 \(line {line}\)"):
        run(both_receive, PAIR)
    assert "rank 0" not in message(leads_to_a_ring, [[0.0]] * 4)


# Mistakes in a call or in a message.


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda c, b: c.Send(b, 2), "Rank 0's Send (line _) names rank 2"),
        (lambda c, b: c.Send(b[::2], 1), "shape (2,)"),
        (lambda c, b: c.Recv(np.float64(1), 1), "cannot write into a read-only"),
        (lambda c, b: c.Sendrecv_replace([1.0], 1), "Rank 0's Sendrecv_replace (line _) needs"),
        (lambda c, b: c.Sendrecv(b, 1, 0, b, 1), "the memory that it sends"),
        (lambda c, b: c.Reduce(b, None, op=max), "needs one of MPI.SUM"),
        (lambda c, b: c.Recv(b, c.rank), "its own message"),
        (lambda c, b: c.Split(None), "Rank 0's Split (line _) needs a whole number"),
    ],
)
def test_a_wrong_call_is_explained(call, words):
    assert words in message(by_rank(call), np.zeros((2, 4)))


@pytest.mark.parametrize(
    ("receive", "words"),
    [
        (lambda c, b: c.Recv(b[:1], 0), "2 elements.*1 element"),
        (lambda c, b: c.Recv(b.astype("f4"), 0), "float64.*float32"),
    ],
)
def test_the_two_ends_of_a_message_must_fit(receive, words):
    text = message(by_rank(lambda c, b: c.Send(b, 1), receive))
    assert re.search(f"rank 0's Send to rank 1.*{words}", text, re.IGNORECASE)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (by_rank(lambda c, b: c.Isend(b, 1, tag=4)), "Rank 1 never .*0's Isend .*tag 4"),
        (by_rank(lambda c, b: c.Send(b, 1)), "Rank 1 never .*0's Send"),  # as it is eager
        (by_rank(lambda c, b: c.Irecv(b, 1)), "No message .*0's Irecv from rank 1"),
        (by_rank(lambda c, b: c.Isend(b, 1), lambda c, b: c.Recv(b, 0)), "0 never waits .*Isend"),
    ],
)
def test_messages_and_requests_that_are_left_over(program, words):
    assert re.search(words, message(program, eager=100))


# Buffers that belong to a message under way.


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("dtype", ["f8", "f2", "u1"])
@pytest.mark.parametrize("name", ["Isend", "Irecv"])
def test_a_buffer_that_is_written_while_a_message_uses_it(dtype, name):
    def program(comm, buffer):
        if comm.rank == 0:
            request = getattr(comm, name)(buffer, 1)
            buffer += 1
            request.Wait()
        else:
            (comm.Recv if name == "Isend" else comm.Send)(buffer, 0)

    text = message(program, np.array(PAIR).astype(dtype))
    assert re.match(f"Rank 0 changed what its {name} .*line _", text)


def reads_early(comm, buffer, use):
    other, into = 1 - comm.rank, np.empty_like(buffer)
    request = comm.Irecv(into, other)
    total = use(buffer, into)
    comm.Send(buffer, other) if comm.rank else comm.Isend(buffer, other).Wait()
    request.Wait()
    buffer[:] = total
    comm.Barrier()


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("dtype", ["f8", "c8"])
@pytest.mark.parametrize(
    "use", [np.add, np.maximum, lambda a, b: -(a * b) / 2, lambda a, b: b.copy()]
)
def test_a_receive_that_is_read_before_wait_is_named(dtype, use):
    text = message(reads_early, np.array(PAIR).astype(dtype), use=use)
    assert re.search("read what its Irecv from rank", text)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (lambda c, b: c.Allreduce(b, b[:1].copy()), "sends 4 elements of float64 and has room"),
        (lambda c, b: c.Allgather(b, np.empty(9)), "shares 9 elements equally among 2 ranks"),
        (
            lambda c, b: c.Bcast(b) if c.rank else c.Reduce(b, b + 1),
            "Rank 0's Reduce (line _) meets rank 1's Bcast (line _)",
        ),
        (lambda c, b: c.Send(b, 1) if c.rank == 0 else c.recv(), "Recv goes with Send"),
        (
            lambda c, b: c.Send(b.view("u1"), 1) if c.rank == 0 else c.recv(),
            "takes what a send sends",  # and unpickles no bytes of a Send
        ),
    ],
)
def test_a_wrong_call_of_all_ranks_is_explained(program, words):
    assert words in message(program, np.zeros((2, 4)))


# Programs that raise, do not end, or swallow what they are told.


def test_the_exception_of_a_rank_with_its_line():
    def program(comm, buffer):
        if comm.rank == 1:
            buffer[comm.size + 1] = 0
        comm.Barrier()

    with pytest.raises(LabError) as caught:
        run(program, PAIR)
    line = program.__code__.co_firstlineno + 2
    words = rf"Rank 1 raised IndexError: index 3 .*\(line {line}: buffer\[comm.size \+ 1\] = 0\)"
    assert re.match(words, str(caught.value))
    assert isinstance(caught.value.__cause__, IndexError)
    assert "Rank 0 raised SystemExit: 3" in message(lambda comm, buffer: exit(3))
    assert run(lambda comm, buffer: exit(0), PAIR)


def tries_again(comm, buffer):
    while True:
        try:
            comm.Send(buffer, 7)
        except:  # noqa: E722
            buffer += 1


def cleans_up_for_ever(comm, buffer):
    try:
        comm.Recv(buffer, 1 - comm.rank)
    finally:
        while comm.rank == 0:
            buffer += 1


def communicates_for_ever(comm, buffer):
    while True:
        comm.Sendrecv(buffer, 1 - comm.rank, recvbuf=np.empty(2), source=1 - comm.rank)


def computes_for_ever(comm, buffer):
    try:
        while True:
            buffer += 1
    except BaseException:  # noqa: BLE001
        while True:
            buffer += 1


# The interrupt may come inside a destructor, where Python drops it; another follows.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("program", "words"),
    [
        (tries_again, "names rank 7"),
        (cleans_up_for_ever, "Deadlock: rank 0 waits in Recv from rank 1"),
        (communicates_for_ever, "not ended after 0.1 s; it was at line _"),
        (computes_for_ever, "not ended after 0.1 s; it was at line _: (buffer|while)"),
    ],
)
def test_a_run_ends_whatever_the_program_does_about_it(program, words, monkeypatch):
    monkeypatch.setattr(time_limit, "AGAIN", 0.05)
    assert re.search(words, message(program, timeout=0.1))


def test_a_communicator_belongs_to_its_rank_and_its_run():
    shared = []

    def of_another(comm, buffer):
        shared.append(comm)
        shared[0].Isend(buffer, 1)

    assert re.match("Rank 0's Isend .*another rank", message(of_another))
    with pytest.raises(LabError, match="after the run"):
        shared[0].Barrier()


def test_communication_inside_a_call_of_tensorflow_is_refused():
    library = {"__name__": "tensorflow.python.ops.custom_gradient"}
    exec("def differentiated(function):\n    return function()", library)

    def program(comm, buffer):
        library["differentiated"](lambda: comm.Send(buffer, 1 - comm.rank))

    assert re.match("Rank 0's Send .*communicate between tapes", message(program))
