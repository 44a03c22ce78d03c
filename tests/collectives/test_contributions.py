"""Whose contributions a run holds, step by step; and the player, which shows them."""

from __future__ import annotations

import numpy as np

from labkit.collectives import programs, run
from tests.collectives.wrong_programs import numbers, ring


def counts_at(held, step):
    return [[change.counts for change in row] for row in held.at(step)]


def keep(comm, buffer):
    """Send nothing."""


# What is told of a run.


def test_the_ring_of_four_adds_one_rank_with_each_step():
    held = run(programs.ring_all_reduce, ranks=4).contributions()
    begun = [change for change in held.changes if change.step == 0]
    assert [change.text for change in begun] == [str(n) for n in range(1, 17)]
    assert [held.at(step)[1][0].counts for step in (0, 1)] == [(0, 1, 0, 0), (1, 1, 0, 0)]
    assert counts_at(held, 6) == [[(1, 1, 1, 1)] * 4] * 4
    # The published totals: after reduce-scatter rank r has chunk r + 1.
    assert [held.at(3)[rank][(rank + 1) % 4].text for rank in range(4)] == ["32", "36", "40", "28"]


def test_counting_twice_is_seen_from_the_step_on_in_which_it_happens():
    held = run(ring, numbers(4), at=(2, 1), mistake="twice").contributions()
    doubled = [c for c in held.changes if c.counts and max(c.counts) > 1]
    assert (doubled[0].step, doubled[0].rank, doubled[0].counts) == (2, 2, (2, 2, 1, 0))
    assert {change.cell for change in doubled} == {0, 1}  # the elements of chunk 0


def test_a_program_of_unknown_reduction_is_a_sum_or_nothing_is_claimed():
    """A maximum of equal inputs was told as a sum."""
    for ufunc, given_op, found in (
        (np.add, None, "sum"),
        (np.maximum, None, None),
        (np.hypot, None, None),
        (np.maximum, "max", "max"),
        (np.minimum, "min", "min"),
    ):
        trace = run(ring, [np.full(3, 3.0)] * 3, ufunc=ufunc)
        held = trace.contributions(given_op)
        assert held.op == found
        if found:
            assert counts_at(held, trace.steps) == [[(1, 1, 1)] * 3] * 3
        assert found or {one.counts for one in held.changes if one.step} <= {None}
    assert run(programs.broadcast, ranks=4).contributions().op is None
    assert run(keep, ranks=1).contributions().op is None


def test_cells_are_the_pieces_that_travel():
    cells = run(programs.ring_all_reduce, [np.zeros(10)] * 3).contributions().cells
    assert cells == ((0, 4), (4, 7), (7, 10))
    # A program that always sends all of its buffer is cut as all others are.
    assert len(run(programs.tree_all_reduce, [np.zeros(10)] * 3).contributions().cells) == 3
    assert len(run(programs.ring_all_reduce, [np.zeros(8)] * 2).contributions().cells) == 8


def test_nothing_is_claimed_for_a_program_that_goes_another_way_on_other_numbers():
    def moody(comm, buffer):
        way = programs.tree_all_reduce if buffer[0] == 3 else programs.ring_all_reduce
        way(comm, buffer)

    trace = run(moody, [np.full(6, 3.0)] * 3)
    assert {counts for row in counts_at(trace.contributions(), trace.steps) for counts in row} == {
        None
    }

    def picky(comm, buffer):
        if buffer[0] != 3:
            raise ValueError(buffer)

    assert run(picky, [np.full(6, 3.0)] * 3).contributions().op is None
