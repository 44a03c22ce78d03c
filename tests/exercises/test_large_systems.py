"""Wrong answers of lecture 22: programs on nodes."""

import pytest

from labkit.collectives import programs
from labkit.exercises import tasks

TASKS = tasks()


def one_for_all(comm, buffer):
    """Right, but the first rank of each node alone talks to the other nodes."""
    rank = comm.Get_rank()
    node = comm.Split(rank // 4, rank)
    first = comm.Split(0 if rank % 4 == 0 else 1, rank)
    programs.reduce(node, buffer)
    if rank % 4 == 0:
        programs.ring_all_reduce(first, buffer)
    programs.broadcast(node, buffer)


def only_inside(comm, buffer):
    programs.ring_all_reduce(comm.Split(comm.Get_rank() // 4, comm.Get_rank()), buffer)


@pytest.mark.parametrize(
    ("program", "keyword"),
    [
        (programs.ring_all_reduce, "leave node"),
        (one_for_all, "rank 0 alone"),
        (only_inside, "rank"),
    ],
)
def test_a_two_level_program_must_be_right_and_share_the_slow_links(program, keyword):
    outcome = TASKS["22.hierarchical"].check(program)
    assert outcome.state == "wrong"
    assert keyword in outcome.text
