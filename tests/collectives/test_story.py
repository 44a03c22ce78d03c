from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.collectives import Trace, programs, run
from tests.collectives.wrong_programs import numbers, ring

REDUCING = [*programs.ALL_REDUCES, "reduce", "reduce_scatter"]


def counts_at(story, step):
    return [[change.counts for change in row] for row in story.at(step)]


def test_the_ring_of_four_adds_one_rank_with_each_step():
    story = run(programs.ring_all_reduce, ranks=4).story()
    # Rank 1's chunk 0, step by step: its own, then rank 0's too, then the total that comes round.
    assert [story.at(step)[1][0].counts for step in (0, 1, 2, 3)] == [
        (0, 1, 0, 0),
        (1, 1, 0, 0),
        (1, 1, 0, 0),
        (1, 1, 0, 0),
    ]
    assert counts_at(story, 6) == [[(1, 1, 1, 1)] * 4] * 4
    # The published totals: after reduce-scatter rank r has chunk r + 1.
    assert [story.at(3)[rank][(rank + 1) % 4].text for rank in range(4)] == ["32", "36", "40", "28"]


def test_step_0_is_what_every_rank_began_with():
    story = run(programs.ring_all_reduce, ranks=3).story()
    begun = [change for change in story.changes if change.step == 0]
    assert len(begun) == 9
    assert [change.text for change in begun] == [str(n) for n in range(1, 10)]
    assert [change.counts for change in begun][:4] == [(1, 0, 0)] * 3 + [(0, 1, 0)]


@pytest.mark.parametrize("op", ["sum", "mean", "max", "min", "prod"])
@pytest.mark.parametrize("dtype", ["float64", "float16", "int8", "complex128"])
def test_every_rank_ends_with_everybody_once(op, dtype):
    inputs = [(np.arange(1, 13) % (3 + rank)).astype(dtype) for rank in range(5)]
    trace = run(programs.ring_all_reduce, inputs, op=op)
    assert counts_at(trace.story(), trace.steps) == [[(1,) * 5] * 5] * 5


@pytest.mark.parametrize("name", REDUCING)
def test_no_contribution_is_ever_counted_twice_by_our_programs(name):
    trace = run(getattr(programs, name), numbers(6), op="mean")
    story = trace.story()
    assert all(change.counts and max(change.counts) == 1 for change in story.changes)


def test_counting_twice_is_seen_from_the_step_on_in_which_it_happens():
    trace = run(ring, numbers(4), at=(2, 1), mistake="twice")
    story = trace.story()
    doubled = [c for c in story.changes if c.counts and max(c.counts) > 1]
    assert (doubled[0].step, doubled[0].rank, doubled[0].counts) == (2, 2, (2, 2, 1, 0))
    assert {change.cell for change in doubled} == {0, 1}  # the elements of chunk 0


def test_without_an_op_the_numbers_say_which_reduction_it_is():
    story = run(ring, numbers(4), ufunc=np.maximum).story()
    assert story.op == "max"
    assert counts_at(story, 6) == [[(1, 1, 1, 1)] * 8] * 4


def test_true_and_false_can_be_told_too():
    inputs = [np.arange(4) > rank for rank in range(4)]
    story = run(programs.ring_all_reduce, inputs).story()
    assert story.op == "sum"  # of True and False: or
    assert counts_at(story, 6) == [[(1, 1, 1, 1)] * 4] * 4


def test_copies_are_told_by_whose_they_are():
    trace = run(programs.all_to_all, ranks=3)
    rows = counts_at(trace.story(), trace.steps)
    assert rows == [[(1, 0, 0), (0, 1, 0), (0, 0, 1)]] * 3


def test_a_mean_is_told_before_and_after_the_division():
    trace = run(programs.naive_all_reduce, numbers(8, per_chunk=1), op="mean")
    story = trace.story()
    seen = [change.counts for change in story.changes if change.rank == 0 and change.cell == 0]
    assert [sum(counts) for counts in seen] == [1, 2, 3, 4, 5, 6, 7, 8]


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(REDUCING), st.integers(1, 9), st.integers(0, 20))
def test_the_texts_at_the_end_are_the_outputs(name, ranks, size):
    inputs = [np.arange(size) + 100 * rank for rank in range(ranks)]
    trace = run(getattr(programs, name), inputs)
    story = trace.story()
    for row, output in zip(story.at(trace.steps), trace.outputs, strict=False):
        for change in row:
            start, stop = story.cells[change.cell]
            held = [str(value) for value in output[start:stop]]
            assert change.text in (held[0], f"{held[0]} … {held[-1]}")
    assert [stop for _, stop in story.cells][-1:] == ([size] if size else [])


def test_cells_are_the_pieces_that_travel():
    assert run(programs.ring_all_reduce, [np.zeros(10)] * 3).story().cells == (
        (0, 4),
        (4, 7),
        (7, 10),
    )
    # A program that always sends all of its buffer is cut as all others are.
    assert len(run(programs.tree_all_reduce, [np.zeros(10)] * 3).story().cells) == 3
    assert len(run(programs.ring_all_reduce, [np.zeros(8)] * 2).story().cells) == 8


def test_a_run_from_a_file_knows_the_values_and_not_the_contributions(tmp_path):
    trace = run(programs.ring_all_reduce, ranks=3)
    loaded = Trace.load(trace.save(tmp_path / "ring.json")).story()
    assert loaded.at(0)[1][0].counts == (0, 1, 0)
    assert {change.counts for change in loaded.changes if change.step} == {None}
    assert [c.text for row in loaded.at(4) for c in row] == [
        c.text for row in trace.story().at(4) for c in row
    ]


def test_nothing_is_claimed_for_a_program_that_goes_another_way_on_other_numbers():
    def moody(comm, buffer):
        way = programs.tree_all_reduce if buffer[0] == 3 else programs.ring_all_reduce
        way(comm, buffer)

    trace = run(moody, [np.full(6, 3.0)] * 3)
    ends = {change.counts for row in trace.story().at(trace.steps) for change in row}
    assert ends == {None}


def test_a_program_with_scratch_of_its_own_dtype_is_told_in_that_dtype():
    def halves(comm, buffer):
        received = np.empty(buffer.size, np.int8)
        peer = 1 - comm.Get_rank()
        comm.Sendrecv(buffer, dest=peer, recvbuf=received, source=peer)
        buffer += received

    trace = run(halves, [np.ones(4, np.int8)] * 2)
    assert counts_at(trace.story(), 1) == [[(1, 1)] * 4] * 2


def test_buffers_of_different_lengths_have_cells_that_are_empty_somewhere():
    def longer(comm, buffer):
        if comm.Get_rank() == 0:
            comm.Send(buffer, dest=1)
        else:
            comm.Recv(buffer[:2], source=0)

    story = run(longer, [np.ones(2), np.zeros(5)]).story()
    assert [[change.text for change in row] for row in story.at(1)] == [
        ["1", "1", "", "", ""],
        ["1", "1", "0", "0", "0"],
    ]


def test_sixty_four_ranks_take_two_further_runs():
    times = []

    def counted(comm, buffer):
        if comm.Get_rank() == 0:
            times.append(1)
        programs.recursive_doubling_all_reduce(comm, buffer)

    trace = run(counted, ranks=64)
    times.clear()
    story = trace.story()
    assert len(times) == 2
    assert {c.counts for row in story.at(trace.steps) for c in row} == {(1,) * 64}
