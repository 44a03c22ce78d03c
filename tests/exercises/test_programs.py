"""A program that is handed in is run, proved, counted and shown; what is wrong is said by name."""

import re

import numpy as np
import pytest

from labkit.collectives import programs
from labkit.exercises import check
from labkit.exercises.judges import program
from labkit.exercises.lectures.lecture_09_all_reduce import DEADLOCK
from tests.exercises.cells import refused, value


def _everywhere(comm, buffer):
    programs.broadcast(comm, buffer)
    other = comm.Get_rank() ^ 1
    if other < comm.Get_size():
        comm.Sendrecv(buffer.copy(), dest=other, recvbuf=buffer, source=other)


@pytest.mark.parametrize(
    ("task", "answer", "told", "not_told"),
    [
        ("08.tree_broadcast", programs.naive_broadcast, "takes 7 steps; 3 are enough", "messages;"),
        ("08.tree_broadcast", _everywhere, "sends 15 messages; 7 are enough", "? steps;"),
        ("10.ring", programs.tree_all_reduce, "sends 64 B; 48 B are enough", "steps;"),
        ("11.both_targets", programs.ring_all_reduce, "28.0 µs, modelled; the target", "busiest"),
        ("11.both_targets", programs.recursive_doubling_all_reduce, "1.54 kB; 896 B", "steps;"),
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
    assert refused("09.all_reduce_from_two", one_rank_short, told).trace.ranks == 4


def _for_powers_of_two(comm, buffer):
    received, distance = np.empty_like(buffer), 1
    while distance < comm.Get_size():
        dest = (comm.Get_rank() + distance) % comm.Get_size()
        source = (comm.Get_rank() - distance) % comm.Get_size()
        comm.Sendrecv(buffer, dest=dest, recvbuf=received, source=source)
        buffer += received
        distance *= 2


def test_a_judge_of_any_collective_needs_no_sizes():
    for collective in ("all_to_all", "scatter", "reduce_scatter"):
        assert program.program(collective)(getattr(programs, collective)).ranks == 8


def _even_chunks_only(comm, buffer):
    size = buffer.size // comm.Get_size() * comm.Get_size()
    programs.ring_all_reduce(comm, buffer[:size])


def _one_for_all(comm, buffer):
    """Right, but the first rank of each node alone talks to the other nodes."""
    rank = comm.Get_rank()
    node = comm.Split(rank // 4, rank)
    first = comm.Split(0 if rank % 4 == 0 else 1, rank)
    programs.reduce(node, buffer)
    if rank % 4 == 0:
        programs.ring_all_reduce(first, buffer)
    programs.broadcast(node, buffer)


def _only_inside(comm, buffer):
    programs.ring_all_reduce(comm.Split(comm.Get_rank() // 4, comm.Get_rank()), buffer)


@pytest.mark.parametrize(
    ("task", "answer", "told"),
    [
        ("09.fix_the_deadlock", value(DEADLOCK.strip() + "\n"),
         ["On 2 ranks: ", "eadlock", "rank 0 waits in Send to rank 1"]),
        ("09.all_reduce_from_two", _for_powers_of_two, ["on 3 ranks"]),
        ("10.ring", _even_chunks_only, ["on 4 ranks:", "Each rank had 9 elements."]),
        ("08.tree_broadcast", lambda comm: None, ["program(comm, buffer)"]),
        ("22.hierarchical", programs.ring_all_reduce, ["leave node"]),
        ("22.hierarchical", _one_for_all, ["rank 0 alone"]),
        ("22.hierarchical", _only_inside, ["rank"]),
    ],
)  # fmt: skip
def test_a_wrong_program_is_refused_with_the_reason(task, answer, told):
    refused(task, answer, *told)


def test_a_program_that_never_writes_into_its_buffer_is_told_how():
    body = "buffer = 1 + buffer[...]"  # an index, no blank
    outcome = refused("08.tree_broadcast", value(f"def my_broadcast(comm, buffer):\n    {body}\n"))
    assert outcome.text.count("buffer[:] =") == 1
    assert "still a `...`" not in outcome.text


@pytest.mark.parametrize(
    ("answer", "ranks"), [(programs.broadcast, 8), (_for_powers_of_two, 2), (..., None)]
)
def test_a_notebook_shows_the_verdict_and_then_the_students_own_run(answer, ranks, monkeypatch):
    seen = []
    monkeypatch.setattr("IPython.display.display", lambda item, raw=False: seen.append(item))
    check("08.tree_broadcast", answer)._ipython_display_()
    assert "text/html" in seen[0]
    assert [trace.ranks for trace in seen[1:]] == ([ranks] if ranks else [])


def test_a_wrong_ring_is_shown_on_four_ranks_like_the_pictures_of_the_lecture():
    assert check("10.ring", programs.reduce_scatter).trace.ranks == 4


# The interrupt may come inside a destructor, where Python drops it; another follows a second later.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_messages_in_a_loop_that_does_not_end_are_told_with_their_line(monkeypatch):
    def never_doubled(comm, buffer):
        while True:
            other = 1 - comm.Get_rank()
            comm.Sendrecv(buffer, dest=other, recvbuf=buffer.copy(), source=other)

    monkeypatch.setattr(program, "TIME_LIMIT", 0.5)
    text = str(check("08.tree_broadcast", never_doubled))
    first = never_doubled.__code__.co_firstlineno
    assert re.search(rf"line ({first + 1}|{first + 2}|{first + 3})\b", text), text
