"""α and B are found where they are known, and the residuals say how far the model is off."""

import dataclasses

import numpy as np
import pytest

from labkit import LabError, plain
from labkit.collectives import formula
from labkit.collectives.bench.fitting import least_squares
from tests.collectives.bench_made_up import made_up

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def test_a_link_that_follows_the_model_is_found_exactly():
    bench = made_up(latency=12e-6, bandwidth=3e9)
    for fit in (bench.fit("ring_all_reduce"), bench.fit("tree_all_reduce"), bench.fit()):
        assert fit.latency == pytest.approx(12e-6)
        assert fit.bandwidth == pytest.approx(3e9)
        assert fit.typical < 1e-9
    assert bench.fit().contenders == ("ring_all_reduce", "tree_all_reduce")


def test_a_library_pays_its_latency_once_and_the_bus_share():
    bench = made_up(latency=12e-6, bandwidth=3e9)
    assert bench.seconds("mpi", MIB) == pytest.approx(12e-6 + 1.5 * MIB / 3e9)
    assert bench.fit("mpi").latency == pytest.approx(12e-6)


def test_the_residual_of_a_point_has_its_sign_and_place():
    bench = made_up(latency=12e-6, bandwidth=3e9)
    slow = tuple(
        dataclasses.replace(one, seconds=tuple(3 * s for s in one.seconds))
        if (one.contender, one.nbytes) == ("ring_all_reduce", 64 * KIB)
        else one
        for one in bench.timings
    )
    worst = dataclasses.replace(bench, timings=slow).fit("ring_all_reduce").worst
    assert (worst.contender, worst.nbytes) == ("ring_all_reduce", 64 * KIB)
    assert -0.7 < worst.residual < -0.5


def test_neither_number_is_ever_below_zero():
    # Larger is faster: a straight line through it would have a negative bandwidth.
    assert least_squares([(6, 1e3, 2e-3), (6, 1e6, 1e-3)])[1] == 0
    assert least_squares([(6, 1e3, 1e-6), (6, 1e6, 1e-2)])[0] == 0
    falling = made_up(times={KIB: 2e-3, MIB: 1e-3}).fit("ring_all_reduce")
    assert "B = not seen" in repr(falling)


def test_a_published_table_gives_about_the_numbers_that_others_found():
    """All-reduce on 8 A100 (stas00/ml-engineering, network/README.md, read in 2026-11).

    The course's own notes fit 56.3 µs and 210.6 GB/s of bus bandwidth to it, at most 36 % off.
    """
    published = {
        32 * KIB: 43.83, MIB: 101.9, 8 * MIB: 133.5, 64 * MIB: 684.6, 512 * MIB: 4218,
        16 * GIB: 127_997,
    }  # fmt: skip
    rows = np.array([(1, 1.75 * size, us * 1e-6) for size, us in published.items()])
    latency, per_byte = least_squares(rows)
    assert latency == pytest.approx(56.3e-6, rel=0.15)
    assert 1 / per_byte == pytest.approx(210.6e9, rel=0.05)
    # No other pair of numbers nearby is closer, by the logarithms of the errors.
    assert all(
        far_off(rows, latency, per_byte) < far_off(rows, a * latency, b * per_byte)
        for a in (0.99, 1, 1.01)
        for b in (0.99, 1, 1.01)
        if (a, b) != (1, 1)
    )


def far_off(rows, latency, per_byte):
    return float(np.square(np.log((rows[:, :2] @ (latency, per_byte)) / rows[:, 2])).sum())


def test_twice_too_slow_counts_as_much_as_twice_too_fast():
    assert least_squares([(1, 0, 1e-6), (1, 0, 4e-6)])[0] == pytest.approx(2e-6)


def test_a_fit_predicts_other_sizes_and_numbers_of_ranks():
    fit = made_up(latency=1e-6, bandwidth=100e9).fit()
    assert formula("ring_all_reduce").text.startswith("2(P-1)·α")
    ring = fit.seconds("ring_all_reduce", 1e6, 64)
    assert ring == pytest.approx(2 * 63 * 1e-6 + 2 * 63 / 64 * 1e6 / 100e9)


def test_a_fit_says_what_it_is():
    fit = made_up(latency=12e-6, bandwidth=3e9).fit("ring_all_reduce")
    assert repr(fit) == "Fit(ring_all_reduce: α = 12.0 µs, B = 3.00 GB/s)"
    assert fit.kind.name == "modelled"
    assert "T = messages·α + bytes·S/B" in str(fit)
    assert "4 ranks on a made-up machine" in str(fit)
    assert plain.load(plain.dump(fit)) == fit


def test_one_size_or_an_unknown_name_cannot_be_fitted():
    with pytest.raises(LabError, match="from one size"):
        made_up(sizes=(KIB,)).fit()
    with pytest.raises(LabError, match="gloo was not timed"):
        made_up().fit("gloo")
