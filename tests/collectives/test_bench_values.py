"""The check of a timed collective: right programs pass it, and wrong ones cannot."""

import numpy as np
import pytest

from labkit import collectives
from labkit.collectives.bench.values import inputs_of, wrong_elements
from labkit.collectives.programs import MEANING, all_gather, ring_all_reduce

CHECKED = {
    name: meaning
    for name, meaning in MEANING.items()
    if meaning in collectives.bench.rates.COLLECTIVES
}


def left_by(program, ranks=4, count=48, dtype="float32"):
    return collectives.run(
        program, [inputs_of(rank, count, dtype) for rank in range(ranks)]
    ).outputs


def wrong(outputs, collective):
    return sum(
        wrong_elements(np.array(buffer), collective, rank, len(outputs))
        for rank, buffer in enumerate(outputs)
    )


@pytest.mark.parametrize("name", sorted(CHECKED))
def test_every_program_of_the_course_passes(name):
    outputs = left_by(getattr(collectives.programs, name))
    assert wrong(outputs, CHECKED[name]) == 0


@pytest.mark.parametrize("collective", ["all_reduce", "broadcast", "reduce", "all_gather",
                                        "reduce_scatter", "all_to_all"])  # fmt: skip
def test_a_program_that_does_nothing_never_passes(collective):
    assert wrong(left_by(lambda comm, buffer: None), collective) > 0


def one_forgotten(comm, buffer):
    if comm.Get_rank() == 2:
        buffer[:] = 0
    ring_all_reduce(comm, buffer)


def one_counted_twice(comm, buffer):
    if comm.Get_rank() == 2:
        buffer *= 2
    ring_all_reduce(comm, buffer)


def one_element_off(comm, buffer):
    ring_all_reduce(comm, buffer)
    if comm.Get_rank() == 3:
        buffer[-1] += 1


@pytest.mark.parametrize("program", [one_forgotten, one_counted_twice, one_element_off])
def test_a_wrong_sum_is_seen(program):
    assert wrong(left_by(program), "all_reduce") > 0


def test_chunks_in_the_wrong_places_are_seen():
    def turned(comm, buffer):
        all_gather(comm, buffer)
        buffer[:] = np.roll(buffer, buffer.size // comm.Get_size())

    assert wrong(left_by(turned), "all_gather") > 0


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_the_sum_of_64_ranks_is_exact_in_every_dtype(dtype):
    total = sum(inputs_of(rank, 100, dtype) for rank in range(64))
    assert total.dtype == dtype
    assert wrong_elements(total, "all_reduce", 0, 64) == 0
