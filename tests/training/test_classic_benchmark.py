"""The classic benchmark: its text has the defects it names, it runs, and its ablation is true."""

from __future__ import annotations

import pytest

from labkit import plain
from labkit.kinds import LabError
from labkit.training import classic_benchmark, diagnose
from labkit.training.classic_benchmark import DEFECTS, AblationStep, Version


@pytest.mark.parametrize("fixed", [[], *([defect] for defect in DEFECTS), list(DEFECTS[::-1])])
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
        (lambda: classic_benchmark.run(epochs=0), "epochs"),
        (lambda: classic_benchmark.ablation(rounds=0), "rounds"),
    ],
)
def test_what_cannot_be_run_is_refused(wrong, word):
    with pytest.raises(LabError, match=word):
        wrong()


@pytest.fixture(scope="module")
def untouched(four):
    return classic_benchmark.run(images=512)


def test_the_result_holds_both_clocks_and_survives_json(untouched):
    names = ["one fit", "one evaluate", "two fit", "two evaluate"]
    assert [cost.what for cost in untouched.costs] == names
    # It prints CPU seconds of fit and evaluation together.
    spent = sum(cost.cpu_seconds for cost in untouched.costs[2:])
    assert untouched.two_seconds == pytest.approx(spent, rel=0.1)
    assert untouched.kind.name == "measured"
    assert "accuracy" in str(untouched)
    assert plain.load(plain.dump(untouched)) == untouched


@pytest.fixture(scope="module")
def ablation(untouched):
    return classic_benchmark.ablation(images=512, rounds=1)


def test_the_ablation_has_a_step_for_each_defect_in_order(ablation):
    assert [step.fixed for step in ablation.steps] == ["nothing", *DEFECTS]
    assert all(step.words for step in ablation.steps)


def test_the_wrong_loss_ruins_two_replicas_and_its_fix_saves_them(ablation, untouched):
    before, after = ablation.steps[3:5]
    assert (before.fixed, after.fixed) == ("timed evaluation", "loss")
    assert untouched.two_accuracy < 0.3
    assert before.two_accuracy < 0.3
    assert after.two_accuracy > 0.4
    assert "accuracy" in after.changed
    assert "loss" in ablation.mattered
    assert after.one_accuracy == before.one_accuracy > 0.4  # the fix is in the other half


def test_one_round_is_too_few_to_call_a_time_changed(ablation):
    assert not any("time" in step.changed for step in ablation.steps)


def version(fixed, one, two, accuracy=0.5):
    return Version(fixed, {"one": one, "two": two}, {"one": 0.5, "two": accuracy})


@pytest.mark.parametrize(
    ("after", "changed", "words"),
    [
        (version("batch", [1.0] * 8, [1.0] * 8), (), "no change measured"),
        (version("batch", [1.0] * 8, [0.5] * 8), ("time",), "two replicas: 0.50× the time"),
        (version("batch", [1.0] * 8, [0.5, 2.0] * 4), (), "two replicas: cannot tell"),
        (version("batch", [1.0] * 8, [0.9] * 8), (), "no change measured"),  # too small
        (version("loss", [1.0] * 8, [1.0] * 8, 0.9), ("accuracy",), "+40 points"),
    ],
)
def test_a_fix_changed_what_the_rounds_agree_on(after, changed, words):
    found = AblationStep.of(version("nothing", [1.0] * 8, [1.0] * 8), after)
    assert found.changed == changed
    assert words in found.words


def test_the_ablation_is_plain_data_and_says_that_it_was_measured(ablation):
    assert plain.load(plain.dump(ablation)) == ablation
    shown = ablation._repr_mimebundle_()
    assert "measured on" in shown["text/plain"]
    assert "<table" in shown["text/html"]


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
