"""The classic benchmark: its text has the defects it names, it runs, and its ablation is true."""

from __future__ import annotations

import pytest

from labkit.kinds import LabError
from labkit.training import classic_benchmark, diagnose
from labkit.training.classic_benchmark import DEFECTS, AblationStep


@pytest.mark.parametrize("fixed", [[], *([defect] for defect in DEFECTS), list(DEFECTS)[::-1]])
def test_the_program_has_exactly_the_defects_that_are_not_fixed(fixed):
    """Fixed in any order; "one run" stays, which no edit of the text fixes."""
    text = classic_benchmark.program(fixed)
    assert set(diagnose(text).names) == {*DEFECTS, "one run"} - {*fixed}
    assert len(text.splitlines()) <= 48
    assert max(map(len, text.splitlines())) <= 88


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        (lambda: classic_benchmark.program(["clocks"]), "'clock'"),
        (lambda: classic_benchmark.run(images=10), "images"),
        (lambda: classic_benchmark.ablation(rounds=0), "rounds"),
    ],
)
def test_what_cannot_be_run_is_refused(wrong, word):
    with pytest.raises(LabError, match=word):
        wrong()


def test_it_prints_cpu_seconds_and_says_on_what(four):
    result = classic_benchmark.run(images=256)
    names = ["one fit", "one evaluate", "two fit", "two evaluate"]
    assert [cost.what for cost in result.costs] == names
    spent = sum(cost.cpu_seconds for cost in result.costs[2:])
    assert result.two_seconds == pytest.approx(spent, rel=0.1)
    assert "measured on" in str(result)
    assert "256 images" in str(result)


@pytest.fixture(scope="module")
def ablation(four):
    """A short one: the three defects of timing, and the wrong loss."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(classic_benchmark, "DEFECTS", dict(list(DEFECTS.items())[:4]))
        patch.setattr(classic_benchmark, "run", lambda **_: None)  # its warm-up
        return classic_benchmark.ablation(images=512, rounds=1)


def test_the_wrong_loss_ruins_two_replicas_and_its_fix_saves_them(ablation):
    assert [step.fixed for step in ablation.steps] == ["nothing", *list(DEFECTS)[:4]]
    before, after = ablation.steps[3:]
    assert before.accuracy["two"] < 0.3
    assert after.accuracy["two"] > 0.4
    assert ablation.mattered == ("loss",)  # one round is too few to call a time changed
    assert after.accuracy["one"] == before.accuracy["one"] > 0.4  # the fix is in the other half
    shown = ablation._repr_mimebundle_()
    assert "measured on" in shown["text/plain"]
    assert "<table" in shown["text/html"]


@pytest.mark.parametrize(
    ("two", "accuracy", "words"),
    [
        ([1.0] * 8, 0.5, []),
        ([0.5] * 8, 0.5, ["two replicas: 0.50× the time"]),
        ([0.5, 2.0] * 4, 0.5, []),  # the rounds do not agree
        ([0.9] * 8, 0.5, []),  # too small
        ([1.0] * 8, 0.9, ["two replicas: +40 points of accuracy"]),
    ],
)
def test_a_fix_changed_what_the_rounds_agree_on(two, accuracy, words):
    before = AblationStep("nothing", {"one": [1.0] * 8, "two": [1.0] * 8}, {"one": 0.5, "two": 0.5})
    after = AblationStep("loss", {"one": [1.0] * 8, "two": two}, {"one": 0.5, "two": accuracy})
    assert after.changed(before) == words
