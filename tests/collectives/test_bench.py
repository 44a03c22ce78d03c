"""collectives.bench: the timing loop, the check, the fit, the report; then real ranks."""

import dataclasses
import random
from itertools import combinations

import numpy as np
import pytest

from labkit import LabError
from labkit.collectives import bench as room
from labkit.collectives import programs
from labkit.collectives.bench import Bench, Timing, bus_bandwidth, bus_factor, fit_link
from labkit.collectives.bench_rank import (
    MOST_RANKS,
    Prepared,
    inputs_of,
    time_size,
    wrong_elements,
)
from labkit.collectives.formulas import FORMULAS
from labkit.kinds import measured
from labkit.mpi.run import mpiexec

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
NAMES = ("mpi", "ring_all_reduce", "tree_all_reduce")
SIZES = tuple(1 << power for power in range(10, 25, 2))


def made_up(latency=1e-5, bandwidth=1e9, sizes=SIZES, times=None, **changes):
    """A measurement whose times follow the model, or are given."""
    timings = []
    for name in NAMES:
        messages, share = 1.0, bus_factor(4)
        if name in FORMULAS:
            messages, share = FORMULAS[name].terms(4)
        for size in times or sizes:
            seconds = times[size] if times else messages * latency + share * size / bandwidth
            timings.append(Timing(name, size, 1, (0.9 * seconds, seconds, 1.2 * seconds), 0))
    kind = measured("4 ranks on a made-up machine")
    made = Bench(4, tuple(timings), "a made-up MPI", 8, kind)
    return dataclasses.replace(made, **changes)


# --- sizes and bandwidths


def test_a_published_row_has_its_bus_bandwidth():
    """nccl-tests, doc/PERFORMANCE.md; ml-engineering, network/README.md: 8 A100, 16 GiB."""
    assert [bus_factor(ranks) for ranks in (2, 4, 8)] == [1.0, 1.5, 1.75]
    assert round(bus_bandwidth(8, 16 * GIB, 127_997e-6) / 1e9, 2) == 234.89


# --- the check of results


def test_every_rank_has_its_own_data_so_that_a_wrong_pair_changes_every_sum():
    """Data by rank modulo 7 let wrong sums of 8 ranks pass."""
    inputs = [inputs_of(rank, 100) for rank in range(MOST_RANKS)]
    assert all((a != b).all() for a, b in combinations(inputs, 2))
    total = sum(inputs)
    assert (total.dtype, wrong_elements(total, MOST_RANKS)) == ("float32", 0)


# --- the timing loop


def timed(work=lambda buffer: None, names="abc", rounds=12, seconds=60.0, others=()):
    """One rank, what others say each time, and a log of barriers and calls."""
    log = []
    buffer = np.empty(16, "float32")

    def prepared(name):
        def fill(values):
            buffer[:] = values(0)

        def call():
            log.append((name, bool(buffer.any())))
            work(buffer)

        return Prepared(fill, call, lambda: [buffer])

    class Alone:
        def Barrier(self):
            log.append("barrier")

        def allgather(self, value):
            return [value, *others]

    plan = {"ranks": 1, "rounds": rounds, "seconds_per_size": seconds}
    contenders = {name: prepared(name) for name in names}
    found = time_size(Alone(), plan, 64, contenders, random.Random(1))
    return [Timing(*one) for one in found], log


@pytest.mark.parametrize(("broken_from", "wrong"), [(1, 2), (6, 1)])
def test_a_wrong_result_is_counted_at_the_beginning_and_at_the_end(broken_from, wrong):
    calls = []

    def work(buffer):
        calls.append(1)
        buffer[3] += len(calls) >= broken_from

    assert timed(work=work, names="a")[0][0].wrong == wrong


def test_the_slowest_rank_counts_and_a_short_call_is_timed_many_times():
    [one], log = timed(names="a", rounds=3)
    assert log.count(("a", False)) - 3 == 3 * one.calls > 3  # besides three to warm up
    [slow], _ = timed(names="a", rounds=3, others=[7.0], seconds=0.0)
    assert [*slow.seconds] == [7.0] * 3


# --- the fit


def test_the_fit_of_a_published_table_is_the_least_squares_of_the_relative_errors():
    """All-reduce on 8 A100 (stas00/ml-engineering, network/README.md, read in 2026-11).

    The course's own notes fit 56.3 µs and 210.6 GB/s of bus bandwidth to it, at most 36 % off.
    """
    published = {
        32 * KIB: 43.83, MIB: 101.9, 8 * MIB: 133.5, 64 * MIB: 684.6, 512 * MIB: 4218,
        16 * GIB: 127_997,
    }  # fmt: skip
    nbytes, seconds = np.array([*published]), 1e-6 * np.array([*published.values()])

    def loss(latency, bandwidth):
        model = latency + 1.75 * nbytes / bandwidth
        return float(np.square(model / seconds - 1).sum())

    latency, bandwidth = fit_link(1, 1.75, nbytes, seconds)
    assert latency == pytest.approx(56.3e-6, rel=0.15)
    assert bandwidth == pytest.approx(210.6e9, rel=0.05)
    for a, b in ((0.99, 1), (1.01, 1), (1, 0.99), (1, 1.01)):
        assert loss(latency, bandwidth) < loss(a * latency, b * bandwidth)


# --- the result


def test_the_table_has_a_row_for_each_size_and_fit_and_figure_say_the_model():
    bench = made_up(cores=2)
    assert bench._repr_mimebundle_()["text/html"].count("<tr>") == 1 + len(SIZES)
    assert "tree_all_reduce: α = 10.0 µs, B = 1.00 GB/s" in repr(bench.fit("tree_all_reduce"))
    assert "4 ranks share 2 cores" in repr(bench)
    assert "ring: 10.0 µs latency, 1.00 GB/s" in bench.picture().alt


# --- real ranks

try:
    mpiexec()
except LabError as fault:
    reason = str(fault)
else:
    reason = ""
with_mpi = pytest.mark.skipif(bool(reason), reason=reason)
QUICK = {"rounds": 3, "seconds_per_size": 0.0, "timeout": 60.0}


def forgets_the_last(comm, buffer):
    programs.ring_all_reduce(comm, buffer)
    buffer[-1] = 0


@with_mpi
def test_the_library_the_programs_and_your_own_are_timed_and_checked_together():
    # Not a multiple of anything: chunks are uneven.
    names = ("mpi", "ring_all_reduce", "double_binary_tree_all_reduce")
    found = room.measure(ranks=3, sizes=[4, 4000], contenders=[*names, forgets_the_last], **QUICK)
    assert found.contenders == (*names, "forgets_the_last")
    assert found.sizes == (4, 4000)
    assert {one.contender for one in found.timings if one.wrong} == {"forgets_the_last"}
    assert all(len(one.seconds) == 3 for one in found.timings)
    assert found.library
    assert found.kind.name == "measured"


@pytest.mark.parametrize(
    ("arguments", "keyword"),
    [
        ({"ranks": 1}, "ranks"),
        ({"contenders": ["mpi", "mpi"]}, "'mpi'"),
    ],
)
def test_a_mistake_is_one_sentence(arguments, keyword):
    with pytest.raises(LabError, match=keyword):
        room.measure(**arguments)
