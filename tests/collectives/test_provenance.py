from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.collectives import programs, run
from labkit.collectives.provenance import (
    alike,
    chunks,
    exact_code,
    operation,
    quick_code,
    run_again,
)
from labkit.kinds import LabError

DTYPES = ["float64", "float32", "float16", "int64", "int32", "int8", "uint8", "complex64"]


def contents(trace, code, counts):
    """What a rank would hold that had every contribution so often."""
    ufunc = {"prod": np.multiply}.get(code.op, np.add)
    for turn in range(code.runs):
        inputs = code.inputs(trace, turn)
        total = np.full((), 1 if code.op == "prod" else 0, code.dtype)
        for buffer, count in zip(inputs, counts, strict=True):
            for _ in range(count):
                ufunc(total, buffer[0], out=total)
        yield total.item()


def still(comm, buffer):
    """Nobody sends anything."""


def told(code, trace, counts, divided=False):
    read = []
    for value in contents(trace, code, counts):
        part = code.read(value / trace.ranks if divided else value, divided)
        if part is None:
            return None
        read += part
    return tuple(read[: trace.ranks])


@settings(deadline=None)
@given(st.data(), st.sampled_from(DTYPES), st.sampled_from(["sum", "mean", "prod"]))
def test_the_digits_of_a_result_say_how_often_each_rank_is_in_it(data, dtype, op):
    ranks = data.draw(st.integers(1, 9))
    code = exact_code(op, np.dtype(dtype), ranks)
    if code is None:
        return
    most = code.base - 1
    if op == "mean":  # the sum of all has to fit, and no more
        most = min(most, 1)
    counts = tuple(data.draw(st.lists(st.integers(0, most), min_size=ranks, max_size=ranks)))
    trace = run(still, [np.zeros(1, dtype)] * ranks)
    assert told(code, trace, counts) == counts


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=60))
def test_the_quick_code_is_right_or_says_nothing(counts):
    trace = run(still, [np.zeros(1)] * len(counts))
    code = quick_code("sum", np.dtype("float64"), len(counts))
    read = told(code, trace, counts)
    assert read == (tuple(counts) if max(counts) <= 1 else None)


def test_a_divided_mean_is_read_as_well():
    trace = run(still, [np.zeros(1)] * 5)
    code = exact_code("mean", np.dtype("float64"), 5)
    assert told(code, trace, (1, 0, 1, 1, 0), divided=True) == (1, 0, 1, 1, 0)


def test_a_number_that_no_counts_give_is_not_read():
    code = exact_code("sum", np.dtype("float64"), 4)
    assert code.read(4096.0) is None
    assert code.read(0.5) is None
    assert code.read(float("nan")) is None
    assert code.read(-1.0) is None


def test_a_mean_of_many_ranks_does_not_fit_into_eight_bits():
    assert exact_code("mean", np.dtype("int8"), 200) is None


@settings(deadline=None)
@given(st.integers(0, 40), st.integers(1, 12))
def test_chunks_are_those_of_numpy(size, ranks):
    parts = np.array_split(np.arange(size), ranks)
    assert [stop - start for start, stop in chunks(size, ranks)] == [part.size for part in parts]


@pytest.mark.parametrize(
    ("op", "name"), [("max", "max"), (np.maximum, "max"), (np.add, "sum"), ("mean", "mean")]
)
def test_the_operation_is_the_one_the_run_was_given(op, name):
    assert operation(run(programs.ring_all_reduce, ranks=2, op=op)) == name


def test_an_operation_that_does_not_exist_is_named():
    with pytest.raises(LabError, match="'average' is no reduction"):
        operation(run(programs.ring_all_reduce, ranks=2), "average")


def test_running_again_prints_nothing(capsys):
    def loud(comm, buffer):
        print("here", comm.Get_rank())

    trace = run(loud, ranks=2)
    capsys.readouterr()
    again = run_again(trace, trace.inputs)
    assert capsys.readouterr().out == ""
    assert alike(trace, again)
