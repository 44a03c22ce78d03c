"""A program that is handed in is run, proved, counted and shown; what is wrong is said by name."""

import re

import numpy as np
import pytest

from labkit.collectives import programs
from labkit.exercises import check
from labkit.exercises.judges import program
from tests.collectives.wrong_programs import ring
from tests.exercises.cells import changed, own, refused, tasks, value


@pytest.mark.parametrize("collective", program.BLOCKS)
def test_every_collective_can_be_a_task_of_its_own(collective):
    """On sizes that it can be done on: an all-to-all needs a chunk for each rank."""
    assert program.program(collective)(getattr(own, collective)).ranks == 8


SENDRECV = "comm.Sendrecv(mine, dest=right, recvbuf=theirs, source=left)"


def _everywhere(comm, buffer):
    own.broadcast(comm, buffer)
    other = comm.Get_rank() ^ 1
    if other < comm.Get_size():
        comm.Sendrecv(buffer.copy(), dest=other, recvbuf=buffer, source=other)


@pytest.mark.parametrize(
    ("task", "answer", "told", "not_told"),
    [
        ("20.tree_broadcast", own.naive_broadcast, "takes 7 steps; 3 are enough", "messages;"),
        ("20.tree_broadcast", _everywhere, "sends 15 messages; 7 are enough", "? steps;"),
        ("22.ring", own.tree_all_reduce, "sends 64 B; 48 B are enough", "steps;"),
        (
            "23.both_targets",
            own.ring_all_reduce,
            "28.0 µs and 14 steps, modelled; the target",
            "busiest",
        ),
        ("23.both_targets", own.recursive_doubling_all_reduce, "1.54 kB; 896 B", "steps;"),
    ],
)
def test_a_correct_program_that_takes_too_much_is_told_of_what_and_by_how_much(
    task, answer, told, not_told
):
    outcome = refused(task, answer, "It is correct. But on", told)
    assert not_told not in outcome.text.partition("\n")[0]


def test_a_contribution_that_is_missing_is_named():
    def one_rank_short(comm, buffer):
        rank, ranks = comm.Get_rank(), comm.Get_size()
        if rank == 0:
            part = np.empty_like(buffer)
            for other in range(1, min(ranks, 3)):
                comm.Recv(part, source=other)
                buffer += part
        elif rank < 3:
            comm.Send(buffer, dest=0)
        programs.broadcast(comm, buffer)

    told = "rank 3's contribution is missing"
    assert refused("21.all_reduce_from_two", one_rank_short, told).trace.ranks == 4


def _for_powers_of_two(comm, buffer):
    received, distance = np.empty_like(buffer), 1
    while distance < comm.Get_size():
        dest = (comm.Get_rank() + distance) % comm.Get_size()
        source = (comm.Get_rank() - distance) % comm.Get_size()
        comm.Sendrecv(buffer, dest=dest, recvbuf=received, source=source)
        buffer += received
        distance *= 2


def _even_chunks_only(comm, buffer):
    size = buffer.size // comm.Get_size() * comm.Get_size()
    programs.ring_all_reduce(comm, buffer[:size])


def _by_hand(comm, buffer):
    """The naive all-reduce."""
    if comm.Get_rank():
        comm.Send(buffer, dest=0)
        comm.Recv(buffer, source=0)
        return
    received = np.empty_like(buffer)
    for other in range(1, comm.Get_size()):
        comm.Recv(received, source=other)
        buffer += received
    for other in range(1, comm.Get_size()):
        comm.Send(buffer, dest=other)


def _ring_on_four(comm, buffer):
    (ring if comm.Get_size() == 4 else _by_hand)(comm, buffer)


def _mean(comm, buffer):
    ring(comm, buffer)
    buffer /= comm.Get_size()


def _padded(comm, buffer):
    """The last chunks may be shorter, or empty."""
    size = -(-buffer.size // comm.Get_size()) * comm.Get_size()
    whole = np.zeros(size)
    whole[: buffer.size] = buffer
    ring(comm, whole)
    buffer[:] = whole[: buffer.size]


def _as_objects(comm, buffer):
    chunks = np.array_split(buffer, n := comm.Get_size())
    rank, left, right = comm.Get_rank(), (comm.Get_rank() - 1) % n, (comm.Get_rank() + 1) % n
    for step in range(2 * (n - 1)):
        received = comm.sendrecv(chunks[(rank - step) % n], dest=right, source=left)
        chunks[(left - step) % n][:] = received + (step < n - 1) * chunks[(left - step) % n]


def _by_one_alone(comm, buffer):
    if comm.Get_rank() == 0:
        programs.reduce(comm, buffer)
    programs.broadcast(comm, buffer)


def _there_and_back(comm, buffer):
    programs.reduce_scatter(comm, buffer)
    programs.all_gather(comm, buffer)


def _only_inside(comm, buffer):
    programs.ring_all_reduce(comm.Split(comm.Get_rank() // 4, comm.Get_rank()), buffer)


@pytest.mark.parametrize(
    ("task", "answer", "told"),
    [
        ("21.fix_the_deadlock", value(tasks()["21.fix_the_deadlock"].given),
         ["On 2 ranks: ", "eadlock", "rank 0 waits in Send to rank 1"]),
        ("21.all_reduce_from_two", _for_powers_of_two, ["on 3 ranks"]),
        ("21.all_reduce_from_two", _by_one_alone, ["Deadlock", "same programs"]),
        ("22.ring", _even_chunks_only, ["on 4 ranks:", "Each rank had 9 elements."]),
        ("21.fix_the_deadlock", programs.all_gather, ["programs.all_gather made"]),
        ("21.all_reduce_from_two", programs.tree_all_reduce, ["tree_all_reduce made"]),
        ("21.all_reduce_from_two", _by_hand, ["_by_hand made the calls"]),
        ("22.ring", own.reduce_scatter, ["on one rank only", "second half is missing"]),
        ("22.ring", _mean, ["is the mean of the arrays"]),
        ("22.ring", _ring_on_four, ["on 3 ranks", "the busiest rank sends 48 B; 32 B are enough"]),
        ("22.ring", own.rabenseifner_all_reduce, ["rank 0 sends to rank 2, not to a neigh"]),
        ("22.ring", programs.ring_all_reduce, ["ring_all_reduce made"]),
        ("23.both_targets", ring, ["on 8 ranks it takes 28.0 µs"]),
        ("45.hierarchical", own.ring_all_reduce, ["leave node"]),
        ("45.hierarchical", _only_inside, ["rank"]),
    ],
)  # fmt: skip
def test_a_wrong_program_is_refused_with_the_reason(task, answer, told):
    refused(task, answer, *told)


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        ("21.all_reduce_from_two", _there_and_back),
        ("21.which_collective", "MPI_Reduce"),
        ("self.shape", [32, 10]),
        ("00.kind", "modeling"),
        ("14.accuracy", "wrong loss function"),
        (
            "21.fix_the_deadlock",
            changed(
                "21.fix_the_deadlock",
                SENDRECV,
                """
        request = comm.Issend(mine, dest=right)
        comm.Recv(theirs, source=left)
        request.Wait()
""",
            ),
        ),
        ("22.ring", _padded),
        ("22.ring", _as_objects),
    ],
)
def test_right_answers_in_another_style_are_right(task, answer):
    assert check(task, answer)


def test_a_program_that_never_writes_into_its_buffer_is_told_how():
    body = "buffer = 1 + buffer[...]"  # an index, no blank
    outcome = refused("20.tree_broadcast", value(f"def my_broadcast(comm, buffer):\n    {body}\n"))
    assert outcome.text.count("buffer[:] =") == 1
    assert "still a `...`" not in outcome.text


@pytest.mark.parametrize(
    ("answer", "ranks"), [(own.broadcast, 8), (_for_powers_of_two, 2), (..., None)]
)
def test_a_notebook_shows_the_verdict_and_then_the_students_own_run(answer, ranks, monkeypatch):
    seen = []
    monkeypatch.setattr("IPython.display.display", lambda item, raw=False: seen.append(item))
    check("20.tree_broadcast", answer)._ipython_display_()
    assert "text/html" in seen[0]
    assert [trace.ranks for trace in seen[1:]] == ([ranks] if ranks else [])


def test_a_wrong_ring_is_shown_on_four_ranks_like_the_pictures_of_the_lecture():
    assert check("22.ring", programs.reduce_scatter).trace.ranks == 4


# The interrupt may come inside a destructor, where Python drops it; another follows a second later.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_messages_in_a_loop_that_does_not_end_are_told_with_their_line(monkeypatch):
    def never_doubled(comm, buffer):
        while True:
            other = 1 - comm.Get_rank()
            comm.Sendrecv(buffer, dest=other, recvbuf=buffer.copy(), source=other)

    monkeypatch.setattr(program, "TIME_LIMIT", 0.5)
    text = str(check("20.tree_broadcast", never_doubled))
    first = never_doubled.__code__.co_firstlineno
    assert re.search(rf"line ({first + 1}|{first + 2}|{first + 3})\b", text), text
