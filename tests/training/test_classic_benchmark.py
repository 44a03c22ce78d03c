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


def test_an_unknown_defect_is_refused():
    with pytest.raises(LabError, match="'clock'"):
        classic_benchmark.program(["clocks"])


@pytest.fixture(scope="module")
def fewer_images(four):
    """So that the programs of these tests are short, and one round is enough."""
    with pytest.MonkeyPatch.context() as patch:
        text = classic_benchmark.PREPARATION
        patch.setattr(classic_benchmark, "PREPARATION", text.replace("2048", "512"))
        patch.setattr(classic_benchmark, "DEFECTS", dict(list(DEFECTS.items())[:4]))
        patch.setenv("LABKIT_ROUNDS", "1")
        yield


def test_it_prints_cpu_seconds_and_says_on_what(fewer_images):
    result = classic_benchmark.run()
    names = ["one fit", "one evaluate", "two fit", "two evaluate"]
    assert [cost.what for cost in result.costs] == names
    spent = sum(cost.cpu_seconds for cost in result.costs[2:])
    assert result.two.printed == pytest.approx(spent, rel=0.1)
    assert f"two replicas: {result.two.printed:.2f} seconds" in str(result)
    assert "measured on" in str(result)


def test_the_wrong_loss_ruins_two_replicas_and_its_fix_saves_them(fewer_images):
    """The three defects of timing, and the wrong loss."""
    ablation = classic_benchmark.ablation()
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


def test_the_exercises_of_the_lecture_have_the_answers_that_the_lecture_gives():
    from labkit.exercises import check

    answers = {
        "04.defects": 9,
        "04.accuracy": "loss",
        "04.cpu_seconds": 6,
        "04.bytes": 407_080,
        "04.fixed_cost": 0.75,
    }
    for name, answer in answers.items():
        assert check(name, answer).state == "right", name
    assert check("04.cpu_seconds", 7).state == "wrong"
