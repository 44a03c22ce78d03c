"""Correct programs are accepted in every style, wrong ones refused with rank, chunk and reason."""

from __future__ import annotations

import itertools
import re
import threading
from hashlib import sha256

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.collectives import programs, run
from tests.collectives.wrong_programs import numbers, ring, weighted

TWICE = {"at": (2, 1), "mistake": "twice"}  # rank 2 adds what ranks 0 and 1 have put into chunk 0


def verdict_on(program, collective="all_reduce", ranks=4, dtype=float, check=None, **options):
    trace = run(program, numbers(ranks, dtype=dtype), **options)
    return trace.check(collective, **(check or {}))


def first_fault(*arguments, **keywords):
    verdict = verdict_on(*arguments, **keywords)
    assert not verdict
    return str(verdict).splitlines()[1]


@settings(max_examples=20)
@given(st.data(), st.integers(2, 5), st.sampled_from(["float64", "int64", "float32", "int8"]))
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
        if wrong:
            wanted[rank, chunk] = wrong
    assert found == wanted
    assert bool(verdict) == (not wanted)


@pytest.mark.parametrize(
    ("mistake", "contributors", "numbers"),
    [("twice", (0, 1), "2 times"), ("forget", (0, 1), ""), ("replace", (2,), ""),
     ("swap", (), "55.* 52")],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["float64", "float16", "int8", "uint8"])
def test_one_mistake_in_a_ring_is_named(mistake, contributors, numbers, dtype):
    fault = verdict_on(ring, dtype=dtype, at=(2, 1), mistake=mistake).faults[0]
    assert (fault.rank, fault.chunk, fault.contributors) == (0, 0, contributors)
    assert re.search(numbers, fault.text)


@pytest.mark.parametrize("op", ["max", "min"])
@pytest.mark.parametrize("dtype", ["float64", "int64"])
def test_a_contribution_missing_from_another_reduction_is_named(op, dtype):
    ufunc = {"max": np.maximum, "min": np.minimum}[op]
    inputs = [np.ones(8, dtype)] * 4  # the numbers are right whoever is missing
    verdict = run(ring, inputs, ufunc=ufunc, at=(2, 1), mistake="forget").check("all_reduce", op=op)
    assert verdict.faults[0].contributors == (0, 1)
    assert "right, but only for these inputs" in str(verdict)


def test_right_numbers_that_are_written_into_the_program_are_no_reduction():
    def lucky(comm, buffer):
        buffer[:] = [28, 32, 36, 40]

    verdict = run(lucky, ranks=4).check("all_reduce")
    assert not verdict
    assert "rank 0, chunk 0 (element 0): element 0 is 28, and the sum is" in str(verdict)
    assert "only for these inputs" in str(verdict)


@pytest.mark.parametrize(
    ("combine", "op", "dtype", "words"),
    [
        (lambda parts: np.sum(np.abs(parts), axis=0), "sum", float, ""),
        (lambda parts: np.min([np.zeros_like(parts[0]), *parts], axis=0), "min", float, ""),
        (lambda parts: np.sum(parts, axis=0) + 1, "sum", int, ""),
        (lambda parts: np.trunc(np.sum(parts, axis=0)), "sum", float, ""),
        (lambda parts: parts[0] + 2 * parts[1], "sum", int, "rank 2's contribution is missing; "),
    ],
)
def test_a_reduction_that_is_right_for_some_numbers_only_is_refused(combine, op, dtype, words):
    def gather(comm, buffer):
        parts = np.empty((comm.size, buffer.size), buffer.dtype)
        parts[comm.rank] = buffer
        for other in range(comm.size):
            if other != comm.rank:
                comm.Sendrecv(buffer, dest=other, recvbuf=parts[other], source=other)
        buffer[:] = combine(list(parts))

    verdict = verdict_on(gather, ranks=3, dtype=dtype, check={"op": op})
    assert not verdict
    assert words in str(verdict)


@pytest.mark.filterwarnings("ignore:overflow")
def test_numbers_that_are_not_numbers_do_not_disturb_the_proof():
    inputs = [np.array([np.nan, np.inf, -np.inf, 1e308])] * 4
    assert run(ring, inputs).check("all_reduce")
    assert "counted 2 times" in str(run(ring, inputs, **TWICE).check("all_reduce"))


@pytest.mark.parametrize("wire", ["float32", "int8"])
def test_data_that_goes_through_a_smaller_dtype_is_found_though_this_run_was_right(wire):
    verdict = run(ring, [np.ones(4)] * 4, wire=wire).check("all_reduce")
    assert verdict.faults[0].rank == 0
    assert "only for these inputs" in str(verdict)


def test_a_copy_says_whose_elements_are_there_instead():
    def left_out(comm, buffer):
        if comm.Get_rank() == 0:
            comm.Send(buffer, dest=1)
        elif comm.Get_rank() == 1:
            comm.Recv(buffer, source=0)

    assert re.search("rank 2 .*rank 0's elements 0–5", first_fault(left_out, "broadcast", ranks=3))
    wrong_root = verdict_on(programs.broadcast, "broadcast", check={"root": 2}, ranks=3)
    assert re.search("rank 0's .*rank 2's elements 0–5", wrong_root.faults[1].text)
    assert run(programs.broadcast, ranks=3, root=np.int64(2)).check("broadcast")
    assert run(lambda comm, buffer, root=2: programs.broadcast(comm, buffer, root), ranks=3).check(
        "broadcast"
    )

    def turned(comm, buffer):
        programs.broadcast(comm, buffer)
        buffer[:] = np.roll(buffer, 2)

    found = first_fault(turned, "broadcast", ranks=3)
    assert re.search("rank 0's elements 4–5.*rank 0's elements 0–1", found)


def test_a_program_that_fails_on_other_numbers_is_not_right():
    def picky(comm, buffer):
        if buffer.max() > 1000:
            raise ValueError("too large")
        programs.ring_all_reduce(comm, buffer)

    assert "ValueError" in first_fault(picky)


def test_empty_buffers_and_empty_chunks_are_no_mistake():
    assert "buffers are empty" in str(run(ring, [np.empty(0)] * 3).check("all_reduce"))
    assert run(ring, [np.ones(2)] * 5).check("all_reduce")


SENT = {  # what a rank sends in place of what it must, of what it knows
    "zeros": lambda total, mine: 0 * mine,
    "own numbers": lambda total, mine: mine,
    "noise": lambda total, mine: np.resize([*sha256(total.tobytes()).digest()], mine.size) / 7,
    "all, shuffled": lambda total, mine: np.random.default_rng(1).permutation(total),
}


@pytest.mark.parametrize("op", ["sum", "max"])
@pytest.mark.parametrize("sent", SENT)
def test_numbers_that_come_from_a_shared_variable_are_refused(sent, op):
    """Simulated ranks are in one process, where a variable is shared; real ones are not."""
    known = {}

    def shared(comm, buffer):
        rank, ranks = comm.Get_rank(), comm.Get_size()
        known[rank] = buffer.copy()
        comm.Barrier()
        total = getattr(np, op)([known[one] for one in range(ranks)], axis=0)
        received = np.empty(buffer.size)
        for _ in range(ranks):
            comm.Sendrecv(SENT[sent](total, known[rank]), (rank + 1) % ranks, recvbuf=received)
        buffer[:] = total

    fault = first_fault(shared, check={"op": op}, ranks=2 if sent == "own numbers" else 4)
    assert "variable that the ranks share" in fault
    store = np.zeros((4, 8))

    def written(comm, buffer, store=store):
        comm.Sendrecv(buffer, comm.rank ^ 1, recvbuf=np.empty(buffer.size))
        store[comm.rank] = buffer
        comm.Barrier()
        buffer[:] = getattr(np, op)(store, axis=0)

    assert "rank 0 needs a variable" in first_fault(written, check={"op": op})
    assert "rank 0 needs a variable" in first_fault(written, check={"op": op}, store=store)


class Box:
    def __init__(self, chunk):
        self.chunk = chunk


@pytest.mark.parametrize(
    ("pack", "unpack"),
    [
        (lambda chunk, place: chunk / 3, lambda got, like: got * 3),
        (lambda chunk, place: chunk.astype("complex128"), lambda got, like: got.real),
        (lambda chunk, place: chunk.view("u1") ^ 0x5A, lambda got, like: (got ^ 0x5A).view(float)),
        (lambda chunk, place: np.append(np.full(99, place), chunk), lambda got, like: got[99:]),
        (lambda chunk, place: (place, [Box(chunk)]), lambda got, like: got[1][0].chunk),
    ],
    ids=["scaled", "another dtype", "bytes", "more than is needed", "objects"],
)
def test_messages_of_any_form_may_bring_the_numbers(pack, unpack):
    """`scratch` is shared, and no number of another rank is taken from it."""
    scratch, log, lock = {}, [], threading.Lock()

    def round_the_ring(comm, buffer):
        rank, ranks = comm.Get_rank(), comm.Get_size()
        mine = buffer.copy()
        for step in range(ranks - 1):
            log.append(step)
            out = pack(mine, step)
            if isinstance(out, tuple):
                into = comm.sendrecv(out, (rank + 1) % ranks, source=(rank - 1) % ranks)
            else:
                into = scratch.setdefault(rank, np.empty_like(out))
                comm.Sendrecv(out, (rank + 1) % ranks, recvbuf=into, source=(rank - 1) % ranks)
            mine = np.array(unpack(into, mine), order="C")
            buffer += mine

    assert verdict_on(round_the_ring)

    def locked(comm, buffer):
        with lock:  # it cannot be copied
            pass
        round_the_ring(comm, buffer)

    assert verdict_on(locked)
