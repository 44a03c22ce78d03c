"""Stragglers and failures: closed forms against simulations, and against limits that are known."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.choosing.large_systems import (
    checkpoint_interval,
    expected_slowest,
    goodput,
    simulate_failures,
)
from labkit.kinds import LabError

HOUR = 3600.0


@settings(max_examples=30)
@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=5), st.integers(1, 4))
def test_the_slowest_is_the_mean_over_every_combination(times, ranks):
    grids = np.meshgrid(*[times] * ranks)
    assert expected_slowest(times, ranks) == pytest.approx(np.maximum.reduce(grids).mean())


def test_normal_noise_grows_like_published_expected_maxima():
    """Expected maximum of N standard normals: 1.0294 of 4, 1.5388 of 10, 2.5076 of 100 (tables)."""
    noise = np.random.default_rng(0).standard_normal(200_000)
    for ranks, known in ((4, 1.0294), (10, 1.5388), (100, 2.5076)):
        assert expected_slowest(9 + noise, ranks) == pytest.approx(9 + known, abs=0.02)


def test_youngs_interval_is_near_the_best_while_writing_is_short():
    assert checkpoint_interval(6 * HOUR, 6) == pytest.approx(math.sqrt(2 * 6 * 6 * HOUR))
    along = np.linspace(60, 2 * HOUR, 2000)
    best = along[np.argmax([goodput(each, mtbf=6 * HOUR, write=30).training for each in along])]
    assert checkpoint_interval(6 * HOUR, 30) == pytest.approx(best, rel=0.03)


@pytest.mark.parametrize(
    ("interval", "write", "restart"), [(1800, 60, 300), (600, 0, 0), (7200, 600, 1800)]
)
def test_the_closed_form_is_what_simulated_failures_give(interval, write, restart):
    """400 jobs of 500 failures: the mean of their goodputs, within four standard errors."""
    costs, dice = {"write": write, "restart": restart}, np.random.default_rng(0)
    jobs = [
        simulate_failures(interval, dice.exponential(2 * HOUR, 500), **costs) for _ in range(400)
    ]
    shares = np.array([one.training for one in jobs])
    expected = goodput(interval, mtbf=2 * HOUR, **costs)
    assert abs(shares.mean() - expected.training) < 4 * shares.std() / math.sqrt(len(shares)) + 5e-4
    assert expected.training + expected.writing + expected.failures == pytest.approx(1)
    assert goodput(1e9, mtbf=1.0, write=1).training == pytest.approx(0)


@pytest.mark.parametrize(
    ("mistake", "keyword"),
    [
        (lambda: expected_slowest([], 4), "seconds"),
        (lambda: goodput(0, mtbf=HOUR, write=6), "interval"),
        (lambda: simulate_failures(60, [], write=6), "gaps"),
    ],
)
def test_a_mistake_is_one_sentence(mistake, keyword):
    with pytest.raises(LabError, match=keyword):
        mistake()
