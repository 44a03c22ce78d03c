"""The naive benchmark: its text shows what it says, it runs, and its ladder tells the truth."""

from __future__ import annotations

import pytest

from labkit import plain
from labkit.kinds import LabError
from labkit.training import diagnose, naive
from labkit.training.naive import DEFECTS


def test_the_program_has_exactly_the_defects_that_it_is_said_to_have():
    assert set(diagnose(naive.program()).names) == {*DEFECTS, "one run"}


@pytest.mark.parametrize("defect", DEFECTS)
def test_mending_a_defect_takes_it_out_of_the_diagnosis_and_brings_no_other(defect):
    left = set(diagnose(naive.program([defect])).names)
    assert left == {*DEFECTS, "one run"} - {defect}


def test_mended_one_after_the_other_the_diagnosis_shrinks_by_one_each_time():
    for count in range(len(DEFECTS) + 1):
        left = set(diagnose(naive.program(DEFECTS[:count])).names)
        assert left == {*DEFECTS[count:], "one run"}


def test_the_order_of_mending_does_not_matter_to_the_text():
    assert naive.program(DEFECTS) == naive.program(DEFECTS[::-1])


def test_the_program_is_short_enough_to_read():
    for text in (naive.program(), naive.program(DEFECTS)):
        lines = text.splitlines()
        assert len(lines) <= 48
        assert max(map(len, lines)) <= 88


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["clocks"], "no defect of this program. It has: clock"),
        (["one run"], "labkit.compare"),
    ],
)
def test_an_unknown_defect_is_an_error_that_says_which_there_are(names, said):
    with pytest.raises(LabError, match=said):
        naive.program(names)


@pytest.mark.parametrize("wrong", [{"images": 10}, {"images": "all"}, {"epochs": 0}])
def test_impossible_sizes_are_refused(wrong):
    with pytest.raises(LabError, match=next(iter(wrong))):
        naive.run(**wrong)


@pytest.fixture(scope="module")
def untouched(four):
    return naive.run(images=1024)


def test_the_wrong_loss_ruins_two_replicas_and_mending_it_alone_saves_them(untouched):
    mended = naive.run(("loss",), images=1024)
    assert untouched.two_accuracy < 0.4
    assert untouched.one_accuracy > 0.6
    assert mended.two_accuracy > 0.55


def test_the_result_holds_both_clocks_and_survives_json(untouched):
    assert [cost.what for cost in untouched.costs] == [
        "one fit", "one evaluate", "two fit", "two evaluate",
    ]  # fmt: skip
    # It prints CPU seconds of fit and evaluation together.
    spent = sum(untouched.cost(what).cpu_seconds for what in ("two fit", "two evaluate"))
    assert untouched.two_seconds == pytest.approx(spent, rel=0.1)
    assert untouched.kind.name == "measured"
    assert "accuracy" in str(untouched)
    assert plain.load(plain.dump(untouched)) == untouched


@pytest.fixture(scope="module")
def ladder(four):
    return naive.ladder(images=512, rounds=1)


def test_the_ladder_has_a_rung_for_each_defect_in_order(ladder):
    assert [rung.mended for rung in ladder.rungs] == ["nothing", *DEFECTS]


def test_every_rung_says_what_it_changed_or_why_it_did_not(ladder):
    for rung in ladder.rungs[1:]:
        without = rung.words.startswith(("no change seen here: ", "cannot tell"))
        assert bool(rung.changed) != without
    assert "accuracy" in ladder.of("loss").changed
    assert "time" in ladder.of("first epoch").changed
    assert {"loss", "first epoch"} <= set(ladder.mattered)


def test_one_round_is_never_enough_to_call_a_time_changed(ladder):
    for defect in ("loss", "pipeline", "batch", "different batch", "float64"):
        assert "time" not in ladder.of(defect).changed


def test_a_mending_leaves_the_other_half_of_the_program_as_it_was(ladder):
    assert ladder.of("loss").one_accuracy == ladder.of("timed evaluation").one_accuracy
    assert ladder.of("different batch").two_seconds == ladder.of("batch").two_seconds


def test_the_ladder_is_plain_data_and_says_that_it_was_measured(ladder):
    assert plain.load(plain.dump(ladder)) == ladder
    shown = ladder._repr_mimebundle_()
    assert "measured on" in shown["text/plain"]
    assert "<table" in shown["text/html"]
    with pytest.raises(LabError, match="no rung 'lass'"):
        ladder.of("lass")


def test_half_a_round_is_refused():
    with pytest.raises(LabError, match="rounds"):
        naive.ladder(rounds=0)


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
        assert check(name).state == "open"
    assert check("04.cpu_seconds", 7).state == "wrong"
