"""The classic benchmark: its text has the defects it names, it runs, and its ablation is true."""

from __future__ import annotations

import pytest

from labkit.kinds import LabError
from labkit.training import classic_benchmark, diagnose
from labkit.training.classic_benchmark import DEFECTS, AblationStep, Cost, Half


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


def test_it_runs_as_it_is_and_fixed(four, monkeypatch):
    """As it is it prints CPU seconds, evaluation included, and two replicas learn nothing."""
    text = classic_benchmark.PREPARATION.replace("2048", "512")
    monkeypatch.setattr(classic_benchmark, "PREPARATION", text)
    wrong, right = classic_benchmark.run(), classic_benchmark.run(DEFECTS)
    spent = sum(cost.cpu_seconds for cost in wrong.costs[2:])
    assert wrong.two.printed == pytest.approx(spent, rel=0.1)
    assert right.two.printed == pytest.approx(right.two.fit.wall_seconds, rel=0.1)
    assert wrong.two.accuracy < 0.3
    assert right.two.accuracy > 0.4
    names = ["one fit", "one evaluate", "two fit", "two evaluate"]
    assert [cost.what for cost in wrong.costs] == names
    assert f"two replicas: {wrong.two.printed:.2f} seconds" in str(wrong)
    assert "measured on" in str(wrong)


def test_an_ablation_shows_what_each_fix_changed(four, monkeypatch):
    """Each half takes 2 s and 0.5 s of evaluation, and no time at all when trained again."""

    def half(text, name):
        accuracy = 0.2 if '"categorical_crossentropy"' in text else 0.8
        return Half(9.0, accuracy, Cost("fit", 2, 8), Cost("evaluate", 0.5, 1), lambda: None)

    monkeypatch.setattr(classic_benchmark, "_run", half)
    monkeypatch.delenv("LABKIT_ROUNDS", raising=False)
    ablation = classic_benchmark.ablation()
    assert [step.fixed for step in ablation.steps] == ["nothing", *DEFECTS]
    seconds = [step.seconds["two"][0] for step in ablation.steps[:4]]
    assert seconds == pytest.approx([9.0, 2.5, 0.5, 0], abs=0.1)
    assert ablation.mattered[:4] == ("clock", "first epoch", "timed evaluation", "loss")
    shown = ablation._repr_mimebundle_()
    assert "two replicas: +60 points of accuracy" in shown["text/plain"]
    assert "measured on" in shown["text/html"]


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
