"""Laws, roofs and noise against closed forms, and intervals against simulated truth."""

from __future__ import annotations

import math

import numpy as np
import pytest

import labkit
from labkit.limits import amdahl, fit, gustafson, mfu, noise_scale, rates, roofline
from labkit.limits.roofline import Roofline, Work


@pytest.mark.parametrize(("counts", "rounds", "noise"), [
    ((1, 2), 6, 0.02), ((1, 2), 10, 0.1), ((1, 2, 4), 8, 0.05), ((1, 2, 4, 8), 7, 0.1),
])  # fmt: skip
def test_the_interval_holds_the_serial_share_in_930_of_1000_runs(counts, rounds, noise):
    draw, held = np.random.default_rng(len(counts) * rounds), 0
    for _ in range(1000):
        share = draw.uniform(0, 0.9)
        machine = draw.lognormal(0, 0.2, rounds)  # what slows all programs of a round
        times = {
            n: 0.1 * machine * amdahl(share, n) ** -1 * draw.lognormal(0, noise, rounds)
            for n in counts
        }
        found = fit(times).share
        held += found.low <= share <= found.high
    assert held >= 930


def test_times_without_noise_give_the_share_exactly():
    found = fit({n: [3 * (0.25 + 0.75 / n)] * 6 for n in (1, 2, 3, 8)})
    assert found.share.value == pytest.approx(0.25)
    assert "From 25.0 % to 25.0 %" in found.verdict


def test_what_is_added_and_grows_with_the_devices_is_no_amdahl():
    draw = np.random.default_rng(1)
    times = {n: (0.2 + 0.8 / n + 0.05 * (n - 1)) * draw.lognormal(0, 0.01, 8) for n in (1, 2, 4, 8)}
    found = fit(times)
    assert found.misfit is not None
    assert found.misfit.low > 0
    assert "what is added grows" in found.verdict


def test_a_fit_says_when_it_cannot_tell():
    few = fit({1: [1.0, 1.1], 2: [0.6, 0.7]})
    assert few.verdict.startswith("Cannot tell: 2 rounds are too few")
    draw = np.random.default_rng(2)
    wild = fit({n: draw.lognormal(0, 1, 6) for n in (1, 2)})
    assert wild.verdict.startswith("Cannot tell")
    slower = fit({1: [1.0 + i / 100 for i in range(8)], 2: [1.5 + i / 100 for i in range(8)]})
    assert slower.verdict.startswith("More devices are slower")


@pytest.mark.parametrize("times", [
    {}, {1: [1.0]}, {2: [1.0], 4: [0.5]}, {1: [1.0, 2.0], 2: [1.0]}, {1: [], 2: []},
    {1: [1.0], 2: [0.0]}, {1: [1.0], 2: [math.nan]},
])  # fmt: skip
def test_a_fit_without_times_of_one_device_is_refused(times):
    with pytest.raises(labkit.LabError):
        fit(times)


def test_amdahl_and_gustafson_describe_the_same_run():
    serial, n = 0.1, 16
    on_all = serial / (serial + (1 - serial) / n)  # the serial share of the time on n devices
    assert amdahl(serial, n) == pytest.approx(gustafson(on_all, n))
    assert amdahl(0, n) == gustafson(0, n) == n
    assert amdahl(1, n) == gustafson(1, n) == 1


def test_the_work_of_layers_is_counted_from_shapes():
    one = roofline.dense(3, 5, 7, each=2)
    assert one.flops == 2 * 3 * 5 * 7
    assert one.nbytes == 2 * (15 + 35 + 21)
    pointwise = roofline.convolution(4, 6, 6, 3, 8, kernel=1)
    assert pointwise.flops == roofline.dense(4 * 36, 3, 8).flops
    assert pointwise.nbytes == roofline.dense(4 * 36, 3, 8).nbytes
    plain, fused = (roofline.attention(2, 3, 10, 4, fused=flag) for flag in (False, True))
    assert plain.flops == fused.flops
    assert plain.nbytes - fused.nbytes == 4 * 4 * 2 * 3 * 10 * 10
    assert roofline.adam(100).nbytes == 2800
    assert roofline.all_reduce(800, 8) == ("all-reduce", 700, 5600)


def test_below_the_ridge_the_memory_is_the_roof():
    roof = Roofline(1000.0, {"cache": 100.0, "memory": 10.0}, labkit.kinds.modelled("a test"))
    assert (roof.ridge(), roof.ridge("cache")) == (100, 10)
    assert roof.attainable(50) == 500
    assert roof.attainable(50, "cache") == roof.attainable(200) == 1000
    assert roof.seconds(Work("w", 50, 5)) == 0.5
    assert roof.seconds(Work("w", 5000, 5)) == 5
    drawn = roof.picture({"w": (Work("w", 50, 5), 1.0)})
    assert "w 5e-08 GFLOP/s at 10 FLOP per byte" in drawn.alt


def test_published_gpus_have_their_published_ridge():
    assert roofline.of_gpu("H100 SXM").ridge() == pytest.approx(989e12 / 3350e9)
    with pytest.raises(labkit.LabError, match="A100 80 GB"):
        roofline.of_gpu("H1000")


def test_the_utilisation_is_of_what_the_device_could_do_in_that_time():
    assert mfu(600, 2, 1000) == 0.3


def test_the_noise_scale_is_unbiased():
    draw = np.random.default_rng(3)
    gradient, spread, batch = draw.normal(size=50), 2.0, 4
    found = [
        noise_scale(gradient + draw.normal(0, spread / batch**0.5, (5, 50)), batch)
        for _ in range(4000)
    ]
    assert np.mean([one.trace for one in found]) == pytest.approx(50 * spread**2, rel=0.01)
    squared = gradient @ gradient
    assert np.mean([one.squared_norm for one in found]) == pytest.approx(squared, rel=0.01)
    exact = noise_scale([[1.0], [3.0]], 2)
    assert (exact.squared_norm, exact.trace) == (3.0, 4.0)
    assert exact.scale == 4 / 3
    with pytest.raises(labkit.LabError, match="at least two"):
        noise_scale([[1.0]], 2)


def test_a_rate_is_of_the_best_call_and_names_other_programs():
    calls = iter(range(10**9))
    rate = rates.best(lambda: [next(calls) for _ in range(1000)], 1000, "counting", "numbers/s", 2)
    assert rate.value == 1000 / min(rate.windows)
    assert len(rate.windows) == 2
    assert rate.kind.name == "measured"
    shared = rates.Rate("x", 1.0, "B/s", (1.0,), 0.4, rate.kind)
    assert "40.0 % of the time" in repr(shared)


def test_rates_are_measured_in_a_process_of_their_own():
    product = rates.gemm_rate(64, windows=1)
    copied = rates.copy_rate(1 << 16, windows=1)
    assert product.work == 2 * 64**3
    assert copied.work == 2 << 16
    assert product.value > 0 < copied.value
