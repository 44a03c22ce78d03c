"""Tasks with numbers of one's own."""

import pytest

import labkit
from labkit.exercises import Task, check, tasks, variants
from labkit.exercises.variants import VARIANTS, drawn, personal

KEYS = [f"student{number}@example.org" for number in range(200)]


TASKS = tasks()


def solved(task: Task) -> float:
    space = {}
    exec(task.solution, space)
    return space["answer"]


@pytest.mark.parametrize("name", VARIANTS)
def test_each_of_200_keys_has_a_question_that_its_own_solution_answers(name):
    for key in KEYS:
        mine = personal(name, TASKS[name], key)
        assert mine.check(solved(mine)), (key, mine)
        asked = mine.question.replace(",", "")
        for value in drawn(name, key).values():
            assert f"{value}" in asked, (key, mine.question)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_neighbours_number_is_refused(name):
    judged = [personal(name, TASKS[name], key) for key in KEYS]
    answers = [solved(task) for task in judged]
    neighbours = zip(judged, answers[1:] + answers[:1], strict=True)
    refused = [not task.check(answer) for task, answer in neighbours]
    assert sum(refused) >= 0.95 * len(KEYS)


def test_the_texts_of_a_task_have_everything_that_its_variant_replaces():
    for name, variant in VARIANTS.items():
        task = TASKS[name]
        text = " ".join([task.question, task.solution, *task.hints])
        assert [old for old in variant.texts if old not in text] == [], name


def test_without_a_key_a_task_is_the_lectures(monkeypatch):
    monkeypatch.delenv(variants.VARIABLE, raising=False)
    assert personal("01.adam_memory", TASKS["01.adam_memory"]) is TASKS["01.adam_memory"]
    assert "No key" in labkit.student(...)


def test_check_asks_with_the_numbers_of_the_key_that_was_said(monkeypatch):
    monkeypatch.setenv(variants.VARIABLE, "")
    labkit.student("Ada ")
    mine = personal("01.adam_memory", TASKS["01.adam_memory"], "ada")
    assert mine.question in check("01.adam_memory").text
    assert not mine.slips  # of the lecture's numbers
    with pytest.raises(labkit.LabError):
        labkit.student("")
