from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit import plain
from labkit.collectives import Trace, programs, run
from labkit.kinds import LabError
from tests.collectives.wrong_programs import numbers, ring, split, weighted

TWICE = {"at": (2, 1), "mistake": "twice"}  # rank 2 adds what ranks 0 and 1 have put into chunk 0


def verdict_on(program, collective="all_reduce", ranks=4, dtype=float, check=None, **options):
    trace = run(program, numbers(ranks, dtype=dtype), **options)
    return trace.check(collective, **(check or {}))


def first_fault(*arguments, **keywords):
    verdict = verdict_on(*arguments, **keywords)
    assert not verdict
    return str(verdict).splitlines()[1]


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(sorted(programs.MEANING.items())),
    st.integers(1, 9),
    st.integers(0, 13),
    st.sampled_from(
        ["float64", "float32", "float16", "int64", "int8", "uint16", "bool", "complex64"]
    ),
    st.sampled_from(["sum", "mean", "max", "min", "prod"]),
)
def test_every_program_keeps_its_promise(program, ranks, size, dtype, op):
    name, collective = program
    reduces = collective in ("all_reduce", "reduce", "reduce_scatter")
    if op == "mean" and dtype == "bool":
        op = "max"
    size = size * ranks if collective == "all_to_all" else size
    inputs = [(np.arange(size) * (rank + 1) % 5).astype(dtype) for rank in range(ranks)]
    trace = run(getattr(programs, name), inputs, **({"op": op} if reduces else {}))
    verdict = trace.check(collective)
    assert verdict, str(verdict)
    assert verdict.op == (op if reduces else None)


@settings(max_examples=25, deadline=None)
@given(st.data(), st.integers(2, 5), st.sampled_from(["float64", "int64", "float32", "complex128"]))
def test_missing_and_double_contributions_are_named_with_rank_and_chunk(data, ranks, dtype):
    count = st.sampled_from([1, 1, 1, 1, 0, 2, 3])
    row = st.lists(count, min_size=ranks, max_size=ranks)
    table = st.lists(st.lists(row, min_size=ranks, max_size=ranks), min_size=ranks, max_size=ranks)
    weights = data.draw(table)
    verdict = verdict_on(weighted, ranks=ranks, dtype=dtype, weights=weights)
    found = {}
    for fault in verdict.faults:
        for chunk in range(ranks) if fault.chunk is None else [fault.chunk]:
            found[fault.rank, chunk] = fault.contributors
    wanted = {}
    for rank, chunk in itertools.product(range(ranks), repeat=2):
        wrong = tuple(q for q, times in enumerate(weights[rank][chunk]) if times != 1)
        if any(weights[rank][chunk]) and wrong:
            wanted[rank, chunk] = wrong
        elif wrong:  # nothing of anybody: it holds 0 whatever goes in
            wanted[rank, chunk] = ()
    assert found == wanted
    assert bool(verdict) == (not wanted)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int8", "int64", "complex128"])
def test_counting_twice_is_said_with_rank_chunk_and_contributor(dtype):
    assert first_fault(ring, dtype=dtype, **TWICE) == (
        "rank 0, chunk 0 (elements 0–1): the contributions of ranks 0 and 1 are counted 2 times, "
        "and must be once."
    )


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        ("forget", "the contributions of ranks 0 and 1 are missing."),
        ("replace", "rank 2's contribution is missing."),
        (
            "swap",
            "the contributions of ranks 0, 1 and 2 are their element 1, "
            "and must be their element 0.",
        ),
    ],
)
def test_one_mistake_in_a_ring_has_its_sentence(mistake, sentence):
    fault = first_fault(ring, at=(2, 1), mistake=mistake)
    assert fault.startswith("rank 0, chunk 0 (element")
    assert fault.endswith(sentence)


def test_chunks_that_are_off_by_one_are_named_with_the_elements_that_came():
    text = str(verdict_on(ring, mistake="wrong chunk"))
    assert "contribution is its elements" in text
    assert "and must be its elements" in text


@pytest.mark.parametrize("op", ["max", "min", "prod"])
@pytest.mark.parametrize("dtype", ["float64", "int64"])
def test_a_contribution_missing_from_another_reduction_is_named(op, dtype):
    ufunc = {"max": np.maximum, "min": np.minimum, "prod": np.multiply}[op]
    inputs = [np.ones(8, dtype)] * 4  # the numbers are right whoever is missing
    trace = run(ring, inputs, ufunc=ufunc, at=(2, 1), mistake="forget")
    verdict = trace.check("all_reduce", op=op)
    assert verdict.faults[0].contributors == (0, 1)
    assert "The numbers of this run are right, but only for these inputs." in str(verdict)


def test_counting_twice_does_not_spoil_a_maximum_and_that_is_said():
    verdict = verdict_on(ring, check={"op": "max"}, ufunc=np.maximum, **TWICE)
    assert verdict
    assert "does not show whether a contribution was counted twice" in str(verdict)


def test_another_reduction_than_the_one_asked_for_is_recognised():
    assert (
        first_fault(ring, check={"op": "max"})
        == "it takes the sum of all ranks, and not the maximum."
    )
    assert (
        first_fault(ring, check={"op": "mean"})
        == "it takes the sum of all ranks, and not the mean."
    )
    assert (
        first_fault(ring, ufunc=np.maximum) == "it takes the maximum of all ranks, and not the sum."
    )


def test_a_mean_with_a_rank_counted_twice_names_it():
    def twice(comm, buffer):
        ring(comm, buffer, **TWICE)
        buffer /= comm.Get_size()

    fault = first_fault(twice, check={"op": "mean"})
    assert "the contributions of ranks 0 and 1 are counted 2 times" in fault


def test_every_rank_has_to_be_the_largest_once():
    trace = run(ring, numbers(9), ufunc=np.maximum, at=(2, 1), mistake="forget")
    assert trace.check("all_reduce", op="max").faults[0].contributors == (0, 1)


def test_what_happens_to_be_the_maximum_of_our_numbers_is_not_called_a_maximum():
    for ranks in (2, 3):
        for owner in range(ranks):
            times = [int(rank == owner) for rank in range(ranks)]
            weights = [[times] * ranks] * ranks
            trace = run(weighted, numbers(ranks, per_chunk=1), weights=weights)
            assert "is missing" in str(trace.check("all_reduce")) or ranks > 2
            assert "maximum" not in str(trace.check("all_reduce"))


def test_a_mean_may_be_divided_before_or_after_adding_but_not_twice():
    def early(comm, buffer):
        buffer /= comm.Get_size()
        ring(comm, buffer)

    def twice(comm, buffer):
        programs.ring_all_reduce(comm, buffer, op="mean")
        buffer /= comm.Get_size()

    assert verdict_on(early, ranks=3, check={"op": "mean"})
    assert "the sum is divided by 3 twice" in first_fault(twice, ranks=3, check={"op": "mean"})


def test_right_numbers_that_are_written_into_the_program_are_no_reduction():
    def lucky(comm, buffer):
        buffer[:] = [28, 32, 36, 40]

    verdict = run(lucky, ranks=4).check("all_reduce")
    assert not verdict
    assert "it holds 28 whatever the ranks put in" in str(verdict)
    assert "only for these inputs" in str(verdict)


@pytest.mark.filterwarnings("ignore:overflow")
def test_numbers_that_are_not_numbers_do_not_disturb_the_proof():
    inputs = [np.array([np.nan, np.inf, -np.inf, 1e308])] * 4
    assert run(ring, inputs).check("all_reduce")
    assert "counted 2 times" in str(
        run(ring, inputs, at=(2, 1), mistake="twice").check("all_reduce")
    )


@pytest.mark.parametrize("wire", ["float32", "float16", "int8"])
def test_data_that_goes_through_a_smaller_dtype_is_found_though_this_run_was_right(wire):
    inputs = [np.ones(4)] * 4
    verdict = run(ring, inputs, wire=wire).check("all_reduce")
    assert "large ones lose digits" in str(verdict)


def test_a_copy_says_whose_elements_are_there_instead():
    def left_out(comm, buffer):
        if comm.Get_rank() == 0:
            comm.Send(buffer, dest=1)
        elif comm.Get_rank() == 1:
            comm.Recv(buffer, source=0)

    assert first_fault(left_out, "broadcast", ranks=3) == (
        "rank 2, all chunks (elements 0–5): it still holds what rank 2 began with, "
        "and must hold rank 0's elements 0–5."
    )
    assert first_fault(programs.broadcast, "broadcast", check={"root": 2}, ranks=3) == (
        "rank 0, all chunks (elements 0–5): it still holds what rank 0 began with, "
        "and must hold rank 2's elements 0–5."
    )


def test_a_copy_into_the_wrong_chunk_is_named():
    def shifted(comm, buffer):
        rank, ranks = comm.Get_rank(), comm.Get_size()
        chunks = split(buffer, ranks)
        if rank == 0:
            for other in range(1, ranks):
                comm.Send(chunks[other - 1], dest=other)
        else:
            comm.Recv(chunks[rank], source=0)

    assert first_fault(shifted, "scatter") == (
        "rank 1, chunk 1 (elements 2–3): it holds rank 0's elements 0–1, "
        "and must hold rank 0's elements 2–3."
    )


def test_a_broadcast_that_adds_says_whose_sum_is_there():
    def adds(comm, buffer):
        if comm.Get_rank() == 0:
            comm.Send(buffer, dest=1)
        else:
            received = np.empty_like(buffer)
            comm.Recv(received, source=0)
            buffer += received

    assert "it holds the sum of what ranks 0 and 1 put in" in first_fault(
        adds, "broadcast", ranks=2
    )


def test_only_what_the_collective_promises_is_looked_at():
    assert verdict_on(programs.reduce, "reduce", root=3)
    assert verdict_on(programs.ring_all_reduce, "reduce_scatter")
    assert "rank 1, all chunks" in first_fault(programs.reduce)


def test_a_program_that_does_nothing_on_one_rank_is_an_all_reduce():
    def nothing(comm, buffer):
        return None

    assert verdict_on(nothing, ranks=1)
    assert not verdict_on(nothing, ranks=2)


def test_random_programs_and_those_that_remember_are_told_so():
    runs = itertools.count()

    def moody(comm, buffer):
        programs.ring_all_reduce(comm, buffer)
        buffer[0] += next(runs) // comm.Get_size()

    verdict = verdict_on(moody)
    assert not verdict
    assert "Run again on the same inputs, it does something else" in str(verdict)
    assert "only for these inputs" not in str(verdict)


def test_a_program_that_fails_on_other_numbers_is_not_right():
    def picky(comm, buffer):
        if buffer[0] > 1000:
            raise ValueError("too large")
        programs.ring_all_reduce(comm, buffer)

    assert first_fault(picky).startswith(
        "on other numbers of the same shape it does not come to its end: Rank 0 raised ValueError"
    )


def test_a_program_that_takes_another_way_on_other_numbers_may_still_be_right():
    def either(comm, buffer):
        way = programs.tree_all_reduce if buffer.max() < 100 else programs.ring_all_reduce
        way(comm, buffer)

    verdict = verdict_on(either)
    assert verdict
    assert "depends on the data, or on chance" in str(verdict)


def test_a_trace_from_a_file_is_judged_by_its_numbers_and_says_so(tmp_path):
    loaded = Trace.load(run(ring, numbers(3)).save(tmp_path / "right.json"))
    assert loaded.check("all_reduce")
    assert "Only the numbers were compared" in str(loaded.check("all_reduce"))
    wrong = Trace.load(run(ring, numbers(4), **TWICE).save(tmp_path / "wrong.json"))
    assert "rank 0, chunk 0 (elements 0–1): element 0 is 62, and the sum is 52." in str(
        wrong.check("all_reduce")
    )


def test_the_first_few_faults_are_shown_and_the_others_counted():
    verdict = verdict_on(ring, ranks=16, mistake="replace")
    assert len(str(verdict).splitlines()) == 7
    assert len(verdict.faults) + verdict.more == 256
    assert "… and 251 more like these." in str(verdict)


def test_a_barrier_holds_when_every_rank_has_heard_of_every_other():
    assert verdict_on(programs.barrier, "barrier", ranks=7)
    assert verdict_on(lambda comm, buffer: comm.Barrier(), "barrier")

    def only_arrivals(comm, buffer):
        nothing = np.empty(0)
        if comm.Get_rank():
            comm.Send(nothing, dest=0)
        else:
            for other in range(1, comm.Get_size()):
                comm.Recv(nothing, source=other)

    assert first_fault(only_arrivals, "barrier", ranks=3) == (
        "rank 1 can leave before ranks 0 and 2 arrived: no message has told it."
    )


def test_a_barrier_with_a_step_too_few_names_who_was_not_waited_for():
    def short(comm, buffer):
        rank, ranks = comm.Get_rank(), comm.Get_size()
        for distance in (1, 2):
            dest, source = (rank + distance) % ranks, (rank - distance) % ranks
            comm.Sendrecv(np.empty(0), dest=dest, recvbuf=np.empty(0), source=source)

    assert verdict_on(short, "barrier", ranks=4)
    assert first_fault(short, "barrier", ranks=5) == (
        "rank 0 can leave before rank 1 arrived: no message has told it."
    )


@pytest.mark.parametrize(
    ("collective", "check", "sentence"),
    [
        ("allreduce", {}, "Did you mean 'all_reduce'"),
        ("sort", {}, "There are all_gather, all_reduce"),
        ("broadcast", {"op": "sum"}, "only moves data"),
        ("all_reduce", {"op": "average"}, "op must be one of sum, mean"),
        ("all_reduce", {"root": 1}, "has no root"),
        ("reduce", {"root": 9}, "root must be .*from 0 to 3, got 9"),
        ("all_to_all", {}, "Take a multiple of 4"),
    ],
)
def test_a_mistake_in_the_question_is_explained(collective, check, sentence):
    trace = run(programs.ring_all_reduce, [np.zeros(5)] * 4)
    with pytest.raises(LabError, match=sentence):
        trace.check(collective, **check)


def test_empty_buffers_and_empty_chunks_are_no_mistake():
    assert "buffers are empty" in str(run(ring, [np.empty(0)] * 3).check("all_reduce"))
    assert run(ring, [np.ones(2)] * 5).check("all_reduce")


def test_bfloat16_is_a_number_like_any_other():
    import ml_dtypes

    dtype = np.dtype(ml_dtypes.bfloat16)
    assert verdict_on(ring, dtype=dtype)
    assert "counted 2 times" in first_fault(ring, dtype=dtype, **TWICE)


def test_a_verdict_is_plain_data():
    verdict = verdict_on(ring, **TWICE)
    assert plain.load(plain.dump(verdict)) == verdict
    assert verdict._repr_mimebundle_() == {"text/plain": str(verdict)}
