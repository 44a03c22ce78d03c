"""What the verdict may say, how often it is wrong, and whether the rounds it asks for suffice."""

import gc
import math
import random

import pytest

from labkit.timing.ask import compare
from labkit.timing.judge import judge
from tests.timing.fake import World


def noisy(rng, rounds, shift=0.0, spread=0.014, interrupted=0.08):
    """Log-ratios of two programs, as two jittering calls and an interruption now and then give."""
    values = []
    for _ in range(rounds):
        spike = rng.choice((-1, 1)) * rng.expovariate(5) if rng.random() < interrupted else 0.0
        values.append(shift + rng.gauss(0, spread) + spike)
    return values


def test_words():
    assert judge("b", "a", [0.10, 0.11, 0.12, 0.10, 0.11, 0.12, 0.13]).word == "faster"
    assert judge("b", "a", [-0.10, -0.11, -0.12, -0.10, -0.11, -0.12, -0.13]).word == "slower"
    assert judge("b", "a", [0.10, -0.11, 0.12, -0.10, 0.11, -0.12, 0.0]).word == "cannot tell"


def test_a_sure_but_tiny_difference_is_the_same():
    """Practical equality comes before significance: 0.3 % is no reason to choose."""
    values = [0.003 + 0.0001 * i for i in range(8)]
    assert judge("b", "a", values, same_within=0.01).word == "same"
    assert judge("b", "a", values, same_within=0.001).word == "faster"


def test_same_needs_an_interval_inside_the_band():
    wide = [0.02, -0.02] * 5
    assert judge("b", "a", wide, same_within=0.01).word == "cannot tell"
    assert judge("b", "a", wide, same_within=0.05).word == "same"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([], "nothing was timed"),
        ([0.5] * 3, "3 rounds are too few"),
        ([0.5], "one round is too few"),
        ([0.5] * 10 + [math.nan], "not a positive number"),
    ],
)
def test_default_is_cannot_tell(values, said):
    verdict = judge("b", "a", values)
    assert verdict.word == "cannot tell"
    assert said in str(verdict)


def test_a_doubt_forbids_a_verdict():
    verdict = judge("b", "a", [0.5] * 20, doubt="b was still warming up")
    assert verdict.word == "cannot tell"
    assert "still warming up" in str(verdict)


def test_sentence():
    values = [math.log(0.84) + d for d in (-0.04, -0.03, -0.01, 0.0, 0.01, 0.03, 0.04)]
    assert str(judge("two replicas", "one device", values)) == (
        "two replicas is slower than one device: 0.84× (0.81–0.87×, 98 %)"
    )


@pytest.mark.parametrize("rounds", [7, 12, 20])
def test_interval_holds_the_true_ratio_as_often_as_it_says(rounds):
    rng = random.Random(rounds)
    truth, trials = math.log(1.3), 400
    held = 0
    for _ in range(trials):
        found = judge("b", "a", noisy(rng, rounds, truth)).estimate
        held += found.low <= 1.3 <= found.high
    # 98 % less three standard errors of 400 trials.
    assert held / trials >= 0.959


@pytest.mark.parametrize(("rounds", "shift"), [(8, 0.0), (12, 0.004), (20, 0.008), (20, 0.0)])
def test_the_rounds_it_asks_for_settle_it_about_four_times_in_five(rounds, shift):
    rng = random.Random(7)
    asked = settled = 0
    while asked < 40:
        verdict = judge("b", "a", noisy(rng, rounds, shift))
        if verdict.word != "cannot tell":
            continue
        asked += 1
        again = noisy(rng, rounds + verdict.more_rounds, shift)
        settled += judge("b", "a", again).word != "cannot tell"
    assert settled / asked >= 0.6


def test_it_does_not_ask_for_far_more_rounds_than_needed():
    """A fifth of what it asks for would settle it in less than half of the cases."""
    rng = random.Random(8)
    asked = settled = 0
    while asked < 40:
        verdict = judge("b", "a", noisy(rng, 20))
        if verdict.word != "cannot tell":
            continue
        asked += 1
        fewer = noisy(rng, max(7, (20 + verdict.more_rounds) // 5))
        settled += judge("b", "a", fewer).word != "cannot tell"
    assert settled / asked <= 0.5


def test_two_per_cent_are_found_in_twenty_rounds_in_spite_of_interruptions():
    """Plain signed ranks, which an interruption outweighs, find it in nine cases of ten."""
    rng = random.Random(3)
    rounds = [noisy(rng, 20, -0.0198, spread=0.012, interrupted=0.12) for _ in range(300)]
    words = [judge("b", "a", values).word for values in rounds]
    assert words.count("slower") / 300 >= 0.95


class Drifting(World):
    """A machine on which every call takes longer than the one before it: 4 % over 46 calls."""

    def equal_work(self, name, rng):
        def call():
            self.calls.append(name)
            slower = 1 + 0.04 * len(self.calls) / 46
            self.now += round(1e7 * slower * math.exp(rng.gauss(0, 0.005)))

        return call


def drift_trial(seed):
    world, rng = Drifting(), random.Random(seed)
    works = {name: world.equal_work(name, rng) for name in ("a", "b")}
    return compare(works, rounds=20, seed=seed, _clock=world.clock)


def test_drift_cannot_fake_a_difference(monkeypatch):
    # No time is measured here, and 150 full collections of pytest's own heap take half a minute.
    monkeypatch.setattr(gc, "collect", lambda generation=2: 0)
    words = [drift_trial(seed).verdict().word for seed in range(150)]
    # 2 % is promised; 150 trials show more than 5 % with a chance of 1 in 100.
    assert sum(word in ("faster", "slower") for word in words) / 150 <= 0.05


def test_the_drift_of_that_test_would_fake_one_without_interleaving():
    """The control: one program after the other, the same drift is taken for a difference."""
    rng, wrong = random.Random(1), 0
    for _ in range(50):
        a = [math.log(1 + 0.04 * call / 40) + rng.gauss(0, 0.005) for call in range(20)]
        b = [math.log(1 + 0.04 * call / 40) + rng.gauss(0, 0.005) for call in range(20, 40)]
        wrong += judge("b", "a", [x - y for x, y in zip(a, b, strict=True)]).word == "slower"
    assert wrong >= 45
