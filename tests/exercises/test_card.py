"""The card of a task: hints in their order, the solution only once it is open, coloured source."""

import re
import threading
from html import unescape

import pytest

import labkit
from labkit.collectives import programs, run
from labkit.collectives.check import where_wrong
from labkit.exercises import Task, attempts
from labkit.exercises.judges.answers import function
from labkit.progress import ProgressLine
from labkit.shown import coloured
from labkit.views import live
from tests.collectives.wrong_programs import numbers, ring

NAME = "10.adam_memory"


@pytest.fixture(autouse=True)
def shown(tmp_path, monkeypatch):
    """What `display` was given last, as HTML."""
    monkeypatch.setattr(attempts, "FILE", tmp_path / "labkit-progress.json")
    pages = []
    monkeypatch.setattr("IPython.display.display", lambda item, raw: pages.append(item))

    def page(outcome):
        outcome._ipython_display_()
        return pages[-1]["text/html"]

    return page


def hints_in(page):
    """The number of each hint and how deep it lies, with whether it is open."""
    depth, found = 0, []
    for tag in re.findall(r"<details[^>]*>|</details>", page):
        depth += -1 if tag[1] == "/" else 1
        if "data-hint" in tag:
            found.append((int(re.search(r'data-hint="(\d)"', tag)[1]), depth, " open" in tag))
    return found


def test_each_hint_is_inside_the_one_before_and_those_that_were_seen_are_open(shown):
    hints = labkit.exercises.tasks()[NAME].hints
    page = shown(labkit.check(NAME))
    assert hints_in(page) == [(n, n, False) for n in range(1, len(hints) + 1)]
    labkit.hint(NAME)
    assert hints_in(shown(labkit.check(NAME)))[:2] == [(1, 1, True), (2, 2, False)]


def test_the_solution_is_in_the_page_only_after_an_attempt(shown):
    solution = labkit.exercises.tasks()[NAME].solution.strip()
    text = lambda page: unescape(re.sub(r"<[^>]+>", "", page))  # noqa: E731
    assert solution not in text(shown(labkit.check(NAME)))
    assert solution in text(shown(labkit.check(NAME, 12)))
    assert solution in text(shown(labkit.solution(NAME)))


def test_a_name_between_backticks_is_code_and_nothing_else_becomes_a_tag(shown):
    task = Task("At most `most` <b>steps</b>.", print, (), "answer = 1", "So it is.")
    page = shown(task.check(...))
    assert "<code>most</code> &lt;b&gt;steps&lt;/b&gt;" in page


def test_a_saved_notebook_shows_no_progress(shown, monkeypatch):
    before = shown(labkit.check(NAME))
    labkit.check(NAME, 48)
    labkit.hint(NAME)
    assert shown(labkit.check(NAME)) != before
    monkeypatch.setenv("LABKIT_PICTURES", "still")
    assert shown(labkit.check(NAME)) == before


def test_a_hint_that_is_opened_in_the_page_is_counted():
    labkit.hint(NAME)
    for number in ("2", "1"):
        labkit.exercises._hint_was_opened({"task": NAME, "hint": number})
    assert attempts.current()[0].tasks[NAME].hints == 2


def test_the_page_says_while_a_judge_works_when_it_stops(monkeypatch):
    said, texts = threading.Event(), []
    monkeypatch.setattr(live, "shows_live", lambda: True)
    monkeypatch.setattr(ProgressLine, "show", lambda _, text: texts.append(text) or said.set())
    judge = function(lambda called: said.wait() and called(), seconds=45)
    assert labkit.check(Task("?", judge, ("!",), "", ""), lambda: None)
    assert "45 s" in texts[0]


def test_the_place_of_a_task_is_that_in_its_notebook(shown, tmp_path):
    source = "".join(f'check(\\"{name}\\", answer) ' for name in ("10.other", NAME))
    (tmp_path / "10_why.ipynb").write_text(source)
    assert "Task 2 of 2 in lecture 10" in shown(labkit.check(NAME))


def test_coloured_source_keeps_its_text_and_what_is_no_python_stays_plain():
    for code in ('def f(x):\n    return "<b>" + x  # é & co\n', "#SBATCH --time=1\nsrun '$A\n"):
        assert unescape(re.sub(r"<[^>]+>", "", coloured(code))) == code
    assert re.search(r"keyword[^>]+>return<.*string[^>]+>&quot;", coloured('return "a"'))


def wrong_places(program, collective="all_reduce", **options):
    trace = run(program, numbers(4), **options)
    return where_wrong(trace.check(collective).faults, trace.contributions(), trace.steps)


@pytest.mark.parametrize("mistake", ["twice", "replace"])
def test_the_first_wrong_step_is_that_of_the_mistake(mistake):
    step, rank, _ = wrong_places(ring, at=(2, 1), mistake=mistake)[0]
    assert (step, rank) == (2, 2)  # the second step


def test_a_sum_that_lacks_something_is_wrong_at_the_end_and_a_right_program_nowhere():
    found = wrong_places(programs.reduce)
    assert {(step, rank) for step, rank, _ in found} == {(2, rank) for rank in (1, 2, 3)}
    assert wrong_places(ring) == []


def test_what_never_came_is_wrong_at_the_end():
    def one_message(comm, buffer):
        if comm.rank == 0:
            comm.Send(buffer, dest=1)
        elif comm.rank == 1:
            comm.Recv(buffer, source=0)

    assert {place[:2] for place in wrong_places(one_message, "broadcast")} == {(1, 2), (1, 3)}
