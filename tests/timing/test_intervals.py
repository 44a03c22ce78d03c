"""The interval against enumeration, published tables and its own symmetries."""

import itertools
import math
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.timing.intervals import least_rounds, shift, weights


@pytest.mark.parametrize(("count", "confidence"), [(8, 0.95), (9, 0.98)])
def test_level_is_exact_over_all_sign_patterns(count, confidence):
    """Equal programs: every pattern of signs is equally likely. Count those that miss zero."""
    rng = random.Random(count)
    sizes = [rng.uniform(0.5, 2) for _ in range(count)]
    missed = 0
    for signs in itertools.product((-1, 1), repeat=count):
        found = shift([s * size for s, size in zip(signs, sizes, strict=True)], confidence)
        missed += found.low > 0 or found.high < 0
    assert 0.5 * (1 - confidence) <= missed / 2**count <= 1 - confidence


def kept_by_the_test(values, confidence):
    """In whole numbers: the shifts between neighbouring pair means that the sign test keeps."""
    score, patterns = weights(len(values)), Counter([0])  # how many have which sum
    for weight in score:
        patterns += Counter({total + weight: many for total, many in patterns.items()})
    cut, rejected = -1, 0
    while rejected + patterns[cut + 1] <= (1 - confidence) / 2 * 2 ** len(values):
        cut += 1
        rejected += patterns[cut]
    means = sorted((a + b) / 2 for a, b in itertools.combinations_with_replacement(values, 2))
    kept = []
    for low, high in itertools.pairwise(means):
        moved = sorted((v - (low + high) / 2 for v in values), key=abs)
        below = sum(w for w, v in zip(score, moved, strict=True) if v < 0)
        if below > cut and sum(score) - below > cut:
            kept += [low, high]
    return min(kept), max(kept)


@pytest.mark.parametrize("count", [8, 12, 64])
def test_interval_is_what_the_test_does_not_reject(count):
    """With 12 and more, the normal curve gives another one."""
    rng = random.Random(count)
    values = [rng.gauss(1, 1) for _ in range(count)]
    found = shift(values, 0.95)
    assert (found.low, found.high) == pytest.approx(kept_by_the_test(values, 0.95))


# Up to 150 values the distribution is counted, beyond it the normal curve stands for it.
def test_counting_goes_over_into_the_normal_curve():
    width = {}
    for count in (150, 151):
        values = [math.tan(3 * (i / (count - 1) - 0.5)) for i in range(count)]
        found = shift(values, 0.95)
        width[count] = found.high - found.low
    assert width[150] == pytest.approx(width[151], rel=0.02)


def test_too_few_values_give_their_span_and_its_confidence():
    found = shift([1.0, 2.0, 4.0], 0.95)
    assert (found.low, found.high, found.confidence) == (1.0, 4.0, 0.75)
    assert shift([3.0], 0.95).confidence == 0.0
    assert least_rounds(0.95) == 6
    assert shift([1.0 * i for i in range(6)], 0.95).confidence == 0.95


numbers = st.lists(st.floats(-1, 1).map(lambda x: round(x, 6)), min_size=1, max_size=30)


@settings(max_examples=40)
@given(numbers, st.floats(-5, 5), st.sampled_from([0.9, 0.95, 0.99]))
def test_interval_moves_and_turns_with_the_data(values, by, confidence):
    found = shift(values, confidence)
    moved = shift([v + by for v in values], confidence)
    turned = shift([-v for v in values], confidence)
    ends = (found.low, found.value, found.high)
    assert (moved.low, moved.value, moved.high) == pytest.approx([e + by for e in ends], abs=1e-9)
    assert (-turned.high, -turned.value, -turned.low) == pytest.approx(ends, abs=1e-9)
    assert found.low <= found.value <= found.high
