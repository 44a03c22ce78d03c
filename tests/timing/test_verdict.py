"""What the verdict may say, and how often it is wrong."""

import math
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.timing import compare, judge
from labkit.timing.intervals import shift
from labkit.timing.verdict import SAME_WITHIN

BAND = math.log1p(SAME_WITHIN)


@given(
    st.lists(st.floats(-1, 1), min_size=1, max_size=25),
    st.sampled_from([0.004, 0.006, 0.01, 0.05]),
    st.sampled_from([-0.02, 0.0, 0.02]),
)
def test_word_follows_from_where_the_interval_lies(noise, size, middle):
    """Inside the band: same. Beyond it: faster or slower. Anything else: cannot tell."""
    values = [middle + size * one for one in noise]
    verdict, found = judge("b", "a", values), shift(values, 0.95)
    expected = "cannot tell"
    if found.confidence == 0.95:
        if max(abs(found.low), abs(found.high)) < BAND:
            expected = "same"
        elif found.low > BAND:
            expected = "faster"
        elif found.high < -BAND:
            expected = "slower"
    assert verdict.word == expected
    assert bool(verdict.reason) == (expected == "cannot tell")


@pytest.mark.parametrize("sign", [1, -1])
def test_a_sure_difference_that_may_lie_in_the_band_is_not_claimed(sign):
    """An A/A comparison was once published as "slower": 0.988× (0.975–0.997×)."""
    values = [math.log(0.988) + d for d in (-0.012, -0.008, -0.004, 0.0, 0.004, 0.008, 0.01)]
    verdict = judge("the same", "this", [sign * value for value in values])
    assert (verdict.estimate.high - 1) * (verdict.estimate.low - 1) > 0  # 1 is outside
    assert verdict.word == "cannot tell"


@pytest.mark.parametrize(
    "values", [[], [0.5], [0.5] * 10 + [math.nan], [0.2, -0.2] * 10, [BAND] * 8]
)
def test_default_is_cannot_tell_with_a_reason(values):
    verdict = judge("b", "a", values)
    assert verdict.word == "cannot tell"
    assert verdict.reason in str(verdict)
    assert verdict.reason


@pytest.mark.parametrize(("middle", "word"), [(0.02, "faster"), (-0.02, "slower"), (0.0, "same")])
def test_the_rounds_that_it_names_would_tell(middle, word):
    """If the rounds to come are like those that were."""
    values = [middle + d for d in (-0.03, 0.012, -0.012, 0.03)] * 2
    verdict = judge("b", "a", values)
    named = re.search(r"about (\d+) rounds would tell", verdict.reason)
    assert verdict.word == "cannot tell"
    assert judge("b", "a", (values * 100)[: int(named[1])]).word == word


def test_drift_cannot_fake_a_difference(world):
    """Equal programs on a machine on which every call takes longer than the one before it."""
    rng = random.Random(5)

    def call():
        drift = 1 + 0.04 * (len(world.calls) % 46) / 46
        world.calls.append("call")
        world.seconds += 0.01 * drift * math.exp(rng.gauss(0, 0.005))

    claimed = 0
    for seed in range(50):
        result = compare({"a": call, "b": call}, seed=seed)
        found = result.speedup()
        claimed += found.low > 1 or found.high < 1
    # 5 % are allowed without any band; 50 trials show more than 6 with a chance of 1 in 100.
    assert claimed <= 6
    # The control: the same drift, timed one program after the other, fakes one.
    a, b = (
        [0.01 * (1 + 0.04 * i / 40) for i in range(20)],
        [0.01 * (1 + i / 1e3) for i in range(20, 40)],
    )
    assert judge("b", "a", [math.log(x / y) for x, y in zip(a, b, strict=True)]).word == "slower"
