"""benchmarks/collectives.py: its ratios, and that it says honestly what was reached."""

import importlib.util
from pathlib import Path

import pytest

from labkit import collectives
from labkit.collectives.bench import Timing
from tests.collectives.bench_made_up import made_up

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
NBYTES = 16 << 20


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    spec = importlib.util.spec_from_file_location("bench_promise", BENCHMARKS / "collectives.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def turn(**seconds):
    timings = tuple(
        Timing(name, NBYTES, 1.0, 1, tuple(value), 0) for name, value in seconds.items()
    )
    return made_up(timings=timings, libraries={name: name.upper() for name in seconds})


def test_the_ratio_is_taken_within_each_round(benchmark):
    """The machine was ten times slower in half of the rounds, for both alike."""
    ours = [0.010, 0.100] * 6
    one = turn(ring_all_reduce=ours, mpi=[0.8 * seconds for seconds in ours])
    ratio = benchmark.ratio([one], "ring_all_reduce", "mpi", NBYTES)
    assert ratio == pytest.approx((0.8, 0.8, 0.8))


@pytest.mark.parametrize(("mpi", "word"), [(0.7, "reached, 0.70"), (0.5, "MISSED, 0.50")])
def test_the_promise_is_judged_against_the_best_library_that_copies(benchmark, capsys, mpi, word):
    one = turn(
        ring_all_reduce=[1.0] * 8, in_buckets=[0.5] * 8, mpi=[mpi] * 8,
        tensorflow_ring=[9.0] * 8, tensorflow_hierarchical=[0.1] * 8,
    )  # fmt: skip
    rows = benchmark.rows_of([one], "ring_all_reduce", NBYTES)
    assert [row.what for row in rows] == ["ring all-reduce, 16 MB"] * 3
    benchmark.judge([one], rows, NBYTES)
    assert f"of the best library (MPI): {word}" in capsys.readouterr().out


@pytest.mark.parametrize("count", [0, 1, 7, 64])
def test_in_buckets_every_element_is_added_up_once(benchmark, count, monkeypatch):
    monkeypatch.setattr(benchmark, "BUCKET", 80)  # bytes: ten numbers
    inputs = [[float(rank)] * count for rank in range(3)]
    trace = collectives.run(benchmark.in_buckets, inputs)
    assert [list(buffer) for buffer in trace.outputs] == [[3.0] * count] * 3
