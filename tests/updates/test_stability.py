"""The limit of delayed gradients: formula, the roots of a polynomial and training agree."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.updates import Quadratic, Softmax, simulate, stability_limit

DELAYS = [0, 1, 2, 3, 5, 8, 16]


def roots(step, delay):
    """Of z^(delay+1) - z^delay + step: all that delayed gradient descent can do."""
    polynomial = np.zeros(delay + 2)
    polynomial[:2] = 1.0, -1.0
    polynomial[-1] += step
    return np.roots(polynomial)


@pytest.mark.parametrize("delay", DELAYS)
def test_the_formula_is_where_the_largest_root_leaves_the_unit_circle(delay):
    limit = stability_limit(delay)
    assert abs(roots(limit, delay)).max() == pytest.approx(1.0, abs=1e-9)
    assert abs(roots(0.999 * limit, delay)).max() < 1
    assert abs(roots(1.001 * limit, delay)).max() > 1


@settings(max_examples=20)
@given(st.integers(0, 6), st.floats(0.05, 0.9), st.booleans())
def test_simulated_training_converges_below_the_limit_and_diverges_above(delay, share, above):
    factor = 1.1 + share if above else share
    rate = factor * stability_limit(delay)
    run = simulate(Quadratic(), workers=delay + 1, updates=800, learning_rate=rate)
    last = run.losses[-1].loss
    assert (not last < 1) if above else last < 0.05


def _diverges(rate, seed):
    keywords = {"workers": 4, "jitter": 0.3, "learning_rate": rate, "updates": 2000}
    run = simulate(Quadratic(), seed=seed, **keywords)
    return run.losses[-1].loss > run.losses[0].loss


@pytest.mark.stress
def test_the_limit_of_workers_whose_times_vary_is_where_lecture_31_says():
    for seed in range(8):
        assert not _diverges(0.5, seed)
        assert _diverges(0.6, seed)


@pytest.mark.stress
@pytest.mark.parametrize(("slow", "low", "high"), [(None, 1.1, 1.6), ({3: 3.0}, 2.2, 3.0)])
def test_the_gain_of_asynchronous_training_is_within_what_lecture_31_says(slow, low, high):
    problem, rates = Softmax(), (1.0, 1.5, 3.0, 6.0, 10.0)
    usual = {"workers": 4, "compute": 0.030, "jitter": 0.2, "slow": slow}
    for seed in range(12):
        best = []
        for mode, count in (("sync", 160), ("async", 480)):
            runs = [
                simulate(problem, mode=mode, updates=count, learning_rate=rate, seed=seed, **usual)
                for rate in rates
            ]
            best.append(min(filter(None, (run.time_to(0.07) for run in runs))))
        assert low <= round(best[0] / best[1], 1) <= high
