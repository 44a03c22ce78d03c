"""Runs side by side: the same loss, asked in updates and in seconds."""

import pytest

from labkit import plain
from labkit.kinds import LabError, measured
from labkit.updates import Quadratic, Softmax, compare, simulate

BOWL = Quadratic((1.0, 0.2))


def runs(**keywords):
    return [
        simulate(BOWL, mode=mode, slow={3: 4.0}, seconds=60, **keywords)
        for mode in ("sync", "async")
    ]


def test_asynchronous_updates_are_more_and_reach_the_target_first():
    together, alone = runs()
    found = compare(together, alone)
    assert found.names == ("synchronous", "asynchronous")
    assert found.target == together.losses[-1].loss
    assert (together.updates, alone.updates) == (15, 195)
    assert alone.time_to(found.target) < together.time_to(found.target) == 60.0
    assert alone.updates_to(found.target) > together.updates_to(found.target) - 5
    assert "15 updates, 60.0 s" in str(found)


def test_a_target_that_nobody_reaches_is_said():
    assert str(compare(*runs(), target=1e-9)).count("never") == 2


@pytest.mark.parametrize(
    ("pair", "names"),
    [
        ([{"workers": 2}, {"workers": 4}], ("asynchronous, 2 workers", "asynchronous, 4 workers")),
        (
            [{"learning_rate": 0.1}, {"learning_rate": 0.05}],
            ("asynchronous, learning rate 0.1", "asynchronous, learning rate 0.05"),
        ),
        ([{}, {}], ("asynchronous (1)", "asynchronous (2)")),
    ],
)
def test_names_tell_what_is_different(pair, names):
    assert compare(*(simulate(BOWL, **keywords) for keywords in pair)).names == names


def test_a_comparison_comes_back_from_json():
    found = compare(*runs())
    assert str(plain.load(plain.dump(found))) == str(found)


def test_a_measured_run_beside_a_simulated_one_keeps_both_kinds():
    model, other = runs()
    real = plain.load(plain.dump(other))
    object.__setattr__(real, "kind", measured("this machine"))
    found = compare(model, real)
    assert found.names == ("synchronous, modelled", "asynchronous, measured")


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: [simulate(BOWL)], "two runs or more, not 1"),
        (lambda: [simulate(), simulate()], "no loss to compare"),
        (lambda: [simulate(BOWL), simulate(Softmax())], "different things"),
        (lambda: [1, 2], "1 is no run"),
        (lambda: [[simulate(BOWL), simulate(BOWL)]], "A list is no run.*one after the other"),
    ],
)
def test_what_cannot_be_compared_is_refused(made, words):
    with pytest.raises(LabError, match=words):
        compare(*made())


def test_names_must_be_as_many_as_runs():
    with pytest.raises(LabError, match="2 runs need 2 names, not 1"):
        compare(*runs(), names=["only one"])


@pytest.mark.parametrize("names", ["ab", [1, 2], 5])
def test_names_must_be_words(names):
    with pytest.raises(LabError, match="are not words"):
        compare(*runs(), names=names)
