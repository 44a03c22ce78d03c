"""Tasks with numbers of one's own."""

import re

import pytest

import labkit
from labkit.exercises import check, lecture_tasks, personal, tasks
from labkit.exercises.task import Task
from labkit.kinds import LabError

KEYS = [f"student{number}@example.org" for number in range(200)]
PERSONAL = [name for name, one in lecture_tasks.texts().items() if one.is_personal]


def solved(task: Task) -> float:
    space = {}
    exec(task.solution, space)
    return space["answer"]


@pytest.mark.parametrize("name", PERSONAL)
def test_each_of_200_keys_has_a_question_that_its_own_solution_answers_and_its_slips_do_not(name):
    asked = set()
    for key in KEYS:
        mine = personal(name, key)
        assert mine.check(solved(mine)), (key, mine)
        assert not re.search(r"\{\w+(:\S*)?\}", " ".join([mine.question, mine.why, *mine.hints]))
        for slip, words in mine.slips.items():
            told = mine.check(slip)
            assert told.state == "wrong", (key, slip)
            assert words in told.text or any(one in told.text for one in mine.slips.values())
        asked.add(mine.question)
    assert len(asked) > 10


@pytest.mark.parametrize("name", PERSONAL)
def test_a_neighbours_number_is_refused(name):
    judged = [personal(name, key) for key in KEYS]
    answers = [solved(task) for task in judged]
    neighbours = zip(judged, answers[1:] + answers[:1], strict=True)
    refused = [not task.check(answer) for task, answer in neighbours]
    assert sum(refused) >= 0.95 * len(KEYS)


def test_without_a_key_a_task_is_the_lectures(monkeypatch):
    monkeypatch.delenv(lecture_tasks.VARIABLE, raising=False)
    assert personal("10.adam_memory") is tasks()["10.adam_memory"]
    assert "No key" in labkit.student(...)


def test_check_asks_with_the_numbers_of_the_key_that_was_said(monkeypatch):
    monkeypatch.setenv(lecture_tasks.VARIABLE, "")
    labkit.student("Ada ")
    mine = personal("10.adam_memory", "ada")
    assert mine.question in check("10.adam_memory").text
    assert mine.question != tasks()["10.adam_memory"].question
    with pytest.raises(LabError):
        labkit.student("")
