"""The limit of delayed gradients: formula, trying, and the roots of a polynomial agree."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit import plain
from labkit.kinds import LabError
from labkit.updates import (
    Quadratic,
    delayed,
    fastest_step,
    measured_limit,
    simulate,
    stability,
    stability_limit,
)

DELAYS = [0, 1, 2, 3, 5, 8, 16]


def roots(step, delay):
    """Of z^(delay+1) - z^delay + step: all that delayed gradient descent can do."""
    polynomial = np.zeros(delay + 2)
    polynomial[:2] = 1.0, -1.0
    polynomial[-1] += step
    return np.roots(polynomial)


def test_the_known_limits():
    assert [round(stability_limit(delay), 5) for delay in range(4)] == [2, 1, 0.61803, 0.44504]
    fastest = [1, 0.25, 0.14815, 0.10547, 0.08192]
    assert [round(fastest_step(delay), 5) for delay in range(5)] == fastest


@pytest.mark.parametrize("delay", DELAYS)
def test_the_formula_is_where_the_largest_root_leaves_the_unit_circle(delay):
    limit = stability_limit(delay)
    assert abs(roots(limit, delay)).max() == pytest.approx(1.0, abs=1e-9)
    assert abs(roots(0.999 * limit, delay)).max() < 1
    assert abs(roots(1.001 * limit, delay)).max() > 1


@pytest.mark.parametrize("delay", DELAYS)
def test_trying_finds_the_limit_without_the_formula(delay):
    assert measured_limit(delay) == pytest.approx(stability_limit(delay), rel=1e-5)


@pytest.mark.parametrize("delay", DELAYS)
def test_the_fastest_step_is_the_last_whose_slowest_part_does_not_swing(delay):
    step = fastest_step(delay)
    slowest = max(roots(0.99 * step, delay), key=abs)
    assert abs(slowest.imag) < 1e-9
    assert slowest.real > 0
    beyond = max(roots(1.01 * step, delay), key=abs)
    assert abs(beyond.imag) > 1e-3 or beyond.real < 0


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 6), st.floats(0.05, 0.9), st.booleans())
def test_simulated_training_settles_below_the_limit_and_flies_apart_above(delay, share, above):
    factor = 1.1 + share if above else share
    run = simulate(
        Quadratic(),
        workers=delay + 1,
        updates=800,
        learning_rate=factor * stability_limit(delay),
    )
    last = run.losses[-1].loss
    assert (not last < 1) if above else last < 0.05


def test_a_steep_direction_decides_for_all():
    limit = stability_limit(3) / 10.0
    for factor, settles in ((0.97, True), (1.03, False)):
        bowl = Quadratic(curvatures=(10.0, 0.1))
        run = simulate(bowl, workers=4, updates=3000, learning_rate=factor * limit)
        assert (run.losses[-1].loss < run.losses[0].loss) is settles


def test_stability_says_all_of_it_and_comes_back_from_json():
    found = stability([0, 1, 4])
    assert found.difference < 1e-6
    assert plain.load(plain.dump(found)) == found
    assert "0.34730           0.34730" in str(found)
    assert found.kind.name == "modelled"


def test_delayed_descent_begins_with_the_only_version_there_is():
    assert delayed(0.5, delay=2, updates=4) == [1.0, 0.5, 0.0, -0.5, -0.75]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: stability_limit(-1), "delay=-1"),
        (lambda: stability_limit(1.5), "delay=1.5"),
        (lambda: stability_limit(10**400), "from 0 to 1,000,000,000"),
        (lambda: measured_limit(10**6), "from 0 to 500"),
        (lambda: stability([]), "no delay to try"),
        (lambda: stability(3), "stability takes some delays, not 3"),
        (lambda: delayed(0.5, 1, 10**12), "updates=1000000000000"),
        (lambda: delayed(float("nan"), 1), "step=nan"),
    ],
)
def test_a_mistake_is_named_with_its_value(call, words):
    with pytest.raises(LabError, match=words):
        call()
