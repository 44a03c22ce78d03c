"""A function that is handed in is called, judged, and told by example what it does wrong."""

import re
from pathlib import Path

import nbformat
import pytest

from labkit import updates
from labkit.exercises import FunctionTask, check, tasks
from labkit.kinds import LabError

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "notebooks" / "08_sync_and_async.ipynb"


def function(source, name):
    """The function that a student's cell defines."""
    space = {"updates": updates}
    exec(compile(source, f"<{name}>", "exec"), space)
    return space[name]


def handed_in():
    """(task, name of the function, its cell, the solutions that follow) of the notebook."""
    found = []
    for cell in nbformat.read(NOTEBOOK, as_version=4).cells:
        call = re.search(r'^check\("([\w.]+)", (my_\w+)\)$', cell.source, re.MULTILINE)
        if cell.cell_type == "code" and call:
            found.append([*call.groups(), cell.source[: call.start()], []])
        elif "<details>" in cell.source:
            found[-1][3] += re.findall(r"```\n(def .*?)```", cell.source, re.DOTALL)
    return found


ASKED = handed_in()
SOLUTIONS = [
    pytest.param(task, name, text, id=task) for task, name, _, texts in ASKED for text in texts
]


def test_every_function_task_is_asked_in_its_notebook_and_has_a_solution_there():
    known = {name for name, task in tasks("08").items() if isinstance(task, FunctionTask)}
    assert {task for task, _, _, solutions in ASKED if solutions} == known


@pytest.mark.parametrize(("task", "name", "text"), SOLUTIONS)
def test_the_solutions_in_the_notebook_are_right(task, name, text):
    outcome = check(task, function(text, name))
    assert outcome.state == "right", str(outcome)


@pytest.mark.parametrize(("task", "name", "source"), [(t, n, s) for t, n, s, _ in ASKED])
def test_an_untouched_cell_is_an_open_question(task, name, source):
    outcome = check(task, function(source, name))
    assert (outcome.state, bool(outcome)) == ("open", False)
    assert tasks("08")[task].question in str(outcome)


@pytest.mark.parametrize("answer", [3, None, "my_step"])
def test_what_is_no_function_is_told_so(answer):
    assert "is no function" in str(check("08.my_step", answer))


def test_no_answer_shows_the_question():
    assert check("08.my_server").state == "open"


def test_an_exception_is_told_with_the_line_of_the_function():
    def my_staleness(log):
        seen = {}
        return [seen[worker] for worker, _ in log]

    assert "It raised KeyError in its line 3: 0." in str(check("08.my_staleness", my_staleness))


def test_a_function_with_other_arguments_is_told_what_python_says():
    assert "takes 0 positional arguments" in str(check("08.my_step", lambda: 1.0))


def test_a_loop_that_does_not_end_is_stopped(monkeypatch):
    def my_step(delay):
        while True:
            delay += 1

    monkeypatch.setattr("labkit.exercises.function_task.DEADLINE", 0.2)
    assert "not done after 0.2 s" in str(check("08.my_step", my_step))


def test_a_labkit_error_inside_a_function_is_shown_as_it_is():
    def my_step(delay):
        raise LabError("Something of the user's world.")

    assert "Not yet. Something of the user's world." in str(check("08.my_step", my_step))


def test_staleness_that_counts_every_message_or_none_is_answered_with_a_log():
    halves = check("08.my_staleness", lambda log: [0.5 for _, what in log if what == "push"])
    assert "whole numbers" in str(halves)
    never = str(check("08.my_staleness", lambda log: [0 for _, what in log if what == "push"]))
    assert "The log 0 pulls, 1 pulls, 0 pushes, 1 pushes has staleness [0, 1]" in never
    assert "whole numbers" in str(check("08.my_staleness", lambda log: None))


def test_an_exercise_cannot_end_the_lecture():
    def my_step(delay):
        raise SystemExit

    assert "It raised SystemExit in its line 2." in str(check("08.my_step", my_step))


def server(*, wrong):
    """The server of the lecture with one fault."""

    def my_server(inbox, weights, rate):
        version, staleness, kept = 0, [], []
        for message in inbox:
            if message.kind == "pull":
                if wrong != "answers nobody":
                    message.reply(weights, 0 if wrong == "counts nothing" else version)
            elif wrong == "waits for two":
                kept.append(message.gradient)
                version += 1
                if len(kept) == 2:
                    weights, kept = weights - rate * sum(kept) / 2, []
            else:
                sign = 1 if wrong == "climbs" else -1
                weights = weights + sign * rate * message.gradient
                version += 1
                staleness.append(version - message.version - (wrong != "one too stale"))
                if wrong == "ends early":
                    break
        staleness = None if wrong == "keeps no list" else staleness
        return weights if wrong == "returns one thing" else (weights, staleness)

    return my_server


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("answers nobody", "Worker 0 asked for the weights and got no answer."),
        ("counts nothing", "got version 0. The version is the number of pushes so far."),
        ("waits for two", "After 1 push worker 0 asked and got the weights [4, 4]; applied one by"),
        ("climbs", "got the weights [4.6, 5.6]; applied one by one, as they came, they make [3.4"),
        ("one too stale", "the staleness is [0, 0, 0, 0, 0, 0, 0, 0, 0]; yours [1, 1"),
        ("ends early", "it ended after 1 push, and more were to come."),
        ("keeps no list", "its second result is None; a list of numbers is asked."),
        ("returns one thing", "Let it return weights, staleness."),
    ],
)
def test_a_faulty_server_is_told_what_its_workers_saw(wrong, said):
    outcome = check("08.my_server", server(wrong=wrong))
    assert outcome.state == "wrong"
    assert said in str(outcome)


def test_a_faultless_server_is_right_also_when_it_works_in_place():
    def my_server(inbox, weights, rate):
        version, staleness = 0, []
        for message in inbox:
            if message.kind == "pull":
                message.reply(weights, version)
            else:
                weights -= rate * message.gradient
                staleness.append(version - message.version)
                version += 1
        return weights, staleness

    assert check("08.my_server", server(wrong=""))
    assert check("08.my_server", my_server)


def test_a_descent_that_takes_the_newest_gradient_or_counts_from_the_end_is_caught():
    def newest(step, delay, updates):
        x = [1.0]
        for _ in range(updates):
            x.append(x[-1] - step * x[-1])
        return x

    def from_the_end(step, delay, updates):
        x = [1.0]
        for k in range(updates):
            x.append(x[-1] - step * x[k - delay])
        return x

    assert "At step 0.5, delay 1, after 6 updates: x[2] is" in str(check("08.my_descent", newest))
    assert "IndexError" in str(check("08.my_descent", from_the_end))


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (lambda delay: 1.0, "At delay 1 and step 1, after 24 updates x is 1. It does not come"),
        (lambda delay: 0.07, "At delay 0 and step 0.07, after 12 updates x is 0.42. It creeps"),
        (lambda delay: 1 / (delay + 1), "It swings too far"),
        (lambda delay: -1, "A step is larger than 0."),
        (lambda delay: "small", "a number is asked"),
    ],
)
def test_a_step_is_told_at_which_delay_it_fails_and_how(rule, said):
    assert said in str(check("08.my_step", rule))


BY_HAND = {
    "08.sync_step": 95,
    "08.somebody_is_late": 63.4,
    "08.async_rate": 111.1,
    "08.mean_staleness": 15,
    "08.slow_staleness": 15,
    "08.limit_by_hand": 0.618,
    # 1 / sin(6 degrees)
    "08.rate_of_eight": 9.567,
    "08.first_at_the_target": 5.49,
    "08.lockstep": 25,
    "08.lost_update": 6,
    "08.eight_gpus": "synchronous",
    "08.borrowed_laptops": "Asynchronous",
}


@pytest.mark.parametrize(("name", "truth"), BY_HAND.items())
def test_the_answers_are_those_worked_out_by_hand(name, truth):
    assert check(name, truth)
    assert not check(name, "a horse")


def test_the_answers_worked_out_by_hand_are_all_that_there_are():
    known = {n for n, task in tasks("08").items() if not isinstance(task, FunctionTask)}
    assert set(BY_HAND) == known
