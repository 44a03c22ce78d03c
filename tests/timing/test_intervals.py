"""The intervals against enumeration, published tables and their own symmetries."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.timing import intervals
from labkit.timing.intervals import least_rounds, median, shift, weights


def signs_level(count, confidence):
    """The chance, by counting all sign patterns, that the interval of equals misses zero."""
    rng = random.Random(count)
    sizes = [rng.uniform(0.5, 2) for _ in range(count)]
    missed = 0
    for signs in itertools.product((-1, 1), repeat=count):
        found = shift([s * size for s, size in zip(signs, sizes, strict=True)], confidence)
        missed += found.low > 0 or found.high < 0
    return missed / 2**count


@pytest.mark.parametrize(("count", "confidence"), [(7, 0.98), (8, 0.95), (9, 0.98)])
def test_level_is_exact_over_all_sign_patterns(count, confidence):
    """Not above the level promised, and not needlessly far below."""
    level = signs_level(count, confidence)
    assert 0.5 * (1 - confidence) <= level <= 1 - confidence


def kept_by_the_test(values, confidence):
    """By brute force: the shifts between neighbouring pair means that the sign test keeps."""
    count, score = len(values), weights(len(values))
    sums = sorted(
        sum(w for w, s in zip(score, signs, strict=True) if s)
        for signs in itertools.product((0, 1), repeat=count)
    )
    cut = sums[int((1 - confidence) / 2 * 2**count) - 1]
    while sum(s <= cut for s in sums) / 2**count > (1 - confidence) / 2:
        cut -= 1
    means = sorted((a + b) / 2 for a, b in itertools.combinations_with_replacement(values, 2))
    kept = []
    for low, high in itertools.pairwise(means):
        moved = sorted((v - (low + high) / 2 for v in values), key=abs)
        below = sum(w for w, v in zip(score, moved, strict=True) if v < 0)
        if below > cut and sum(score) - below > cut:
            kept += [low, high]
    return min(kept), max(kept)


@pytest.mark.parametrize("seed", range(4))
def test_interval_is_what_the_test_does_not_reject(seed):
    rng = random.Random(seed)
    values = [rng.gauss(1, 1) for _ in range(10)]
    found = shift(values, 0.95)
    assert (found.low, found.high) == pytest.approx(kept_by_the_test(values, 0.95))


@pytest.mark.parametrize(("count", "critical"), [(7, 2), (12, 13), (20, 52), (50, 434)])
def test_without_the_cap_it_is_wilcoxons_published_table(monkeypatch, count, critical):
    """Two-sided 5 %; the interval then ends at that pair mean, counted from either end."""
    rng = random.Random(count)
    values = [rng.gauss(0, 1) for _ in range(count)]
    means = sorted((a + b) / 2 for a, b in itertools.combinations_with_replacement(values, 2))
    monkeypatch.setattr(intervals, "weights", lambda n: tuple(range(1, n + 1)))
    intervals._critical.cache_clear()
    found = shift(values, 0.95)
    intervals._critical.cache_clear()
    assert (found.low, found.high) == pytest.approx((means[critical], means[-critical - 1]))


def test_normal_approximation_agrees_with_counting(monkeypatch):
    rng = random.Random(5)
    values = [rng.gauss(0, 1) for _ in range(160)]
    approximate = shift(values, 0.98)
    monkeypatch.setattr(intervals, "_EXACT", 1000)
    intervals._critical.cache_clear()
    exact = shift(values, 0.98)
    intervals._critical.cache_clear()
    assert (approximate.low, approximate.high) == pytest.approx((exact.low, exact.high), abs=2e-3)


# Ranks of the 95 % interval of a median, as statistics tables print them.
@pytest.mark.parametrize(
    ("count", "low", "high"), [(6, 1, 6), (10, 2, 9), (20, 6, 15), (25, 8, 18)]
)
def test_median_interval_has_the_ranks_of_the_tables(count, low, high):
    found = median([float(i) for i in range(1, count + 1)], 0.95)
    assert (found.low, found.high) == (low, high)


def test_median_ranks_go_over_into_the_normal_curve():
    """On both sides of the switch at 1000 values, the ranks move by less than one."""
    ends = [median([float(i) for i in range(n)], 0.98) for n in (1000, 1001)]
    assert abs(ends[0].low - ends[1].low) <= 1.5
    assert abs(ends[0].high - ends[1].high) <= 1.5


def test_too_few_values_give_their_span_and_its_confidence():
    found = shift([1.0, 2.0, 4.0], 0.98)
    assert (found.low, found.high, found.confidence) == (1.0, 4.0, 0.75)
    assert shift([3.0], 0.98).confidence == 0.0
    assert least_rounds(0.98) == 7
    assert shift([1.0 * i for i in range(7)], 0.98).confidence == 0.98


def test_what_is_not_finite_has_no_interval():
    assert np.isnan(shift([1.0, float("nan")], 0.98).value)
    assert np.isnan(shift([], 0.98).value)


numbers = st.lists(st.floats(-1, 1).map(lambda x: round(x, 6)), min_size=7, max_size=30)


@settings(max_examples=40, deadline=None)
@given(numbers, st.floats(-5, 5))
def test_interval_moves_and_turns_with_the_data(values, by):
    found = shift(values, 0.98)
    moved = shift([v + by for v in values], 0.98)
    turned = shift([-v for v in values], 0.98)
    ends = (found.low, found.value, found.high)
    assert (moved.low, moved.value, moved.high) == pytest.approx([e + by for e in ends], abs=1e-9)
    assert (-turned.high, -turned.value, -turned.low) == pytest.approx(ends, abs=1e-9)
    assert found.low <= found.value <= found.high


def test_one_interrupted_call_hardly_moves_the_interval():
    rng = random.Random(2)
    calm = [rng.gauss(0, 1) for _ in range(20)]
    shaken = [*calm[:-1], 1e6]
    assert abs(shift(shaken, 0.98).value - shift(calm, 0.98).value) < 0.5
    assert shift(shaken, 0.98).high < 3
