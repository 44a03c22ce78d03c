"""An exercise tells right from wrong, says what to try next, and keeps the answer to itself."""

import numpy as np
import pytest

from labkit.exercises import check, tasks
from labkit.kinds import LabError

LECTURE = {**tasks("01"), **tasks("05")}


@pytest.mark.parametrize("name", LECTURE)
def test_an_unanswered_task_shows_its_question(name):
    outcome = check(name, ...)
    assert (outcome.state, bool(outcome)) == ("open", False)
    assert LECTURE[name].question in str(outcome)


@pytest.mark.parametrize("name", LECTURE)
def test_the_true_answer_is_right_and_explained(name):
    outcome = check(name, LECTURE[name].answer())
    assert outcome
    assert LECTURE[name].why in str(outcome)


@pytest.mark.parametrize("name", LECTURE)
@pytest.mark.parametrize("wrong", [-1, 1e30, "a horse", None, float("nan"), [1, 2]])
def test_a_wrong_answer_gets_a_hint_and_not_the_answer(name, wrong):
    outcome = check(name, wrong)
    assert outcome.state == "wrong"
    truth = LECTURE[name].answer()
    written = truth if isinstance(truth, str) else f"{truth:g}"
    assert written not in str(outcome).split()


@pytest.mark.parametrize(
    ("name", "truth"),
    [
        ("01.bytes_per_step", 4_799_528),
        ("01.adam_memory", 48),
        ("01.steps_per_epoch", 1000),
        ("01.link_seconds", 11.2),
        ("01.uneven_halves", 2),
        ("01.which_strategy", "MirroredStrategy"),
        ("05.float32_bytes", 188.16),
        ("05.one_of_four", 25),
        ("05.kilowatt_hours", 127.26),
        ("05.images_per_joule", 20),
        ("05.which_gauge", "sm activity"),
        ("05.too_short", 250),
    ],
)
def test_the_answers_are_those_worked_out_by_hand(name, truth):
    assert check(name, truth)


def test_a_wrong_answer_repeats_the_question_and_a_notebook_gets_it_as_a_paragraph():
    outcome = check("01.adam_memory", "<b>")
    assert LECTURE["01.adam_memory"].question in str(outcome)
    html = outcome._repr_mimebundle_()["text/html"]
    assert html.startswith("<p><strong>Not yet.</strong>")
    assert "<b>" not in html


def test_too_large_and_too_small_are_told_apart():
    assert "too large" in str(check("01.adam_memory", 96))
    assert "too small" in str(check("01.adam_memory", 12))


def test_a_number_of_numpy_is_a_number():
    assert check("01.bytes_per_step", np.int64(4_799_528))


def test_the_full_name_of_a_strategy_is_as_good_as_the_short_one():
    assert check("01.which_strategy", "tf.distribute.MirroredStrategy")
    assert not check("01.which_strategy", "tf.distribute.MultiWorkerMirroredStrategy")


def test_an_unknown_task_lists_those_that_there_are():
    with pytest.raises(LabError, match=r"'01\.horse'.*01\.bytes_per_step"):
        check("01.horse", 1)


def test_an_unknown_lecture_is_named():
    with pytest.raises(LabError, match="'77'"):
        check("77.horse", 1)
