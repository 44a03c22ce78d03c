"""The classic benchmark: its text has the defects it names, it runs, and its ablation is true."""

from __future__ import annotations

import pytest

from labkit import plain
from labkit.kinds import LabError
from labkit.training import classic_benchmark, diagnose
from labkit.training.classic_benchmark import DEFECTS


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
        (lambda: classic_benchmark.ablation(rounds=2), "rounds"),
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
    spent = sum(untouched.cost(name).cpu_seconds for name in names[2:])
    assert untouched.two_seconds == pytest.approx(spent, rel=0.1)
    assert untouched.kind.name == "measured"
    assert "accuracy" in str(untouched)
    assert plain.load(plain.dump(untouched)) == untouched


@pytest.fixture(scope="module")
def ablation(untouched):
    return classic_benchmark.ablation(images=512)


def test_the_ablation_has_a_step_for_each_defect_in_order(ablation):
    assert [step.fixed for step in ablation.steps] == ["nothing", *DEFECTS]
    assert all(step.words for step in ablation.steps)


def test_the_wrong_loss_ruins_two_replicas_and_its_fix_saves_them(ablation, untouched):
    before, after = ablation.step("timed evaluation"), ablation.step("loss")
    assert untouched.two_accuracy < 0.4 < 0.55 < after.two_accuracy
    assert before.two_accuracy < 0.4
    assert "accuracy" in after.changed
    assert after.one_accuracy == before.one_accuracy > 0.6  # the fix is in the other half


def test_the_first_epoch_and_the_loss_mattered(ablation):
    assert "time" in ablation.step("first epoch").changed
    assert {"first epoch", "loss"} <= set(ablation.mattered)
    assert ablation.step("first epoch").two_seconds < ablation.step("clock").two_seconds


def test_the_ablation_is_plain_data_and_says_that_it_was_measured(ablation):
    assert plain.load(plain.dump(ablation)) == ablation
    shown = ablation._repr_mimebundle_()
    assert "measured on" in shown["text/plain"]
    assert "<table" in shown["text/html"]
    with pytest.raises(LabError, match="'loss'"):
        ablation.step("lass")


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
