"""An exercise tells right from wrong, says what to try next, and keeps the answer to itself."""

import ast
import math

import numpy as np
import pytest

from labkit import collectives, memory, updates
from labkit.exercises import Task, check, tasks
from labkit.exercises.judges import number, word
from labkit.kinds import LabError
from tests.exercises.cells import ASKED, NOTEBOOKS, WRITTEN, value

TASKS = {name: task for path in NOTEBOOKS for name, task in tasks(path.name[:2]).items()}
# The answers of each lecture, in the order of its questions.
BY_HAND = {
    "00": [75, "modelled"],
    "01": [4_799_528, 48, 1000, 11.2, 2, "MirroredStrategy"],
    "02": [1250, 0.16],
    "03": [32, 300, 244.248, 70],
    "04": [9, "loss", 6, 407_080, 0.75],
    "05": [188.16, 25, 127.26, 20, "sm activity", 250],
    "06": [31, 6, 70, 700, 240, 7, 4, "reduce"],
    "07": [30, 5, 1.98, 198, 234.9, 4, 3.527, 7.85, 8],
    "08": [95, 63.4, 111.1, 15, 15, 0.618, 9.567, 5.49, 25, 6, "synchronous", "Asynchronous"],
    "09": [768, 60_000, 3, 1600, "CentralStorage", "hang", 52.56, 14.8, 509.1],
    "10": [12, 8, 48, 16, 150, 2, 28, 5.222, 5.778, 4],
    "11": [0.2, 4, 64],
}
NOT_WRITTEN = [name for name in TASKS if name not in {one.task for one in WRITTEN}]
ANSWERS = [
    pytest.param(name, truth, id=name)
    for lecture, truths in BY_HAND.items()
    for name, truth in zip(
        [name for name in NOT_WRITTEN if name.startswith(lecture)], truths, strict=True
    )
]


def test_each_task_is_asked_once_and_what_is_written_is_solved_after_it():
    assert sorted(one.task for one in ASKED) == sorted(TASKS)
    # What is filled in is solved by the task that follows it.
    assert {one.task for one in WRITTEN if not one.solutions} == {"03.fill"}


@pytest.mark.parametrize(("name", "truth"), ANSWERS)
def test_the_answer_worked_out_by_hand_is_right_and_explained(name, truth):
    outcome = check(name, truth)
    assert outcome, str(outcome)
    assert TASKS[name].why in str(outcome)


@pytest.mark.parametrize("name", TASKS)
def test_an_unanswered_task_shows_its_question_and_a_horse_is_wrong(name):
    for outcome in (check(name), check(name, ...)):
        assert (outcome.state, bool(outcome)) == ("open", False)
        assert TASKS[name].question in str(outcome)
    assert check(name, "a horse").state == "wrong"


@pytest.mark.parametrize(("name", "truth"), ANSWERS)
@pytest.mark.parametrize("wrong", [-1, 1e30, None, math.nan, [1, 2]])
def test_a_wrong_answer_gets_the_hint_and_the_question_and_not_the_answer(name, truth, wrong):
    text = str(check(name, wrong))
    assert TASKS[name].hint in text
    assert TASKS[name].question in text
    if isinstance(truth, float):
        assert f"{truth:g}" not in text.split()


def _slow_staleness():
    run = updates.simulate(workers=4, mode="async", slow={3: 5.0}, updates=200)
    return max(run.staleness_counts(3))


def _bounded():
    run = updates.simulate(
        workers=2, mode="ssp", bound=3, compute=0.010, slow={1: 4.0}, updates=2000
    )
    return len(run.of(0)) / run.seconds


def _soonest():
    from labkit.cluster.queue_model import Request, queue

    def done(devices):
        yours = Request("you", 1.0, devices, 24 / devices)
        placed = queue([Request("A", 0, 4, 8.0), Request("B", 0.5, 8, 12.0), yours], devices=8)
        return next(one.end for one in placed.started if one.request is yours)

    return min((1, 2, 3, 4, 6, 8), key=done)


COMPUTED = {
    "01.adam_memory": lambda: memory.footprint(3e9, convention="float32 adam").state / 1e9,
    "07.crossover": lambda: (
        collectives.crossover(
            "ring_all_reduce", "tree_all_reduce", ranks=256, latency=2e-6, bandwidth=50e9
        )
        / 1e6
    ),
    "08.limit_by_hand": lambda: updates.stability_limit(2),
    "08.rate_of_eight": lambda: updates.stability_limit(0) / updates.stability_limit(7),
    "08.slow_staleness": _slow_staleness,
    "08.bounded_staleness": _bounded,
    "10.soonest": _soonest,
}


@pytest.mark.parametrize("name", COMPUTED)
def test_what_labkit_itself_computes_is_right(name):
    assert check(name, COMPUTED[name]())


@pytest.mark.parametrize(
    ("truth", "unit", "given", "named"),
    [
        (25, "%", 0.25, "a share of 1"),
        (4.8, "MB", 4.8e6, "bytes"),
        (4_799_528, "bytes", 4_799_528 * 8, "bits"),
        (0.75, "ms", 0.00075, "s"),
        (11.2, "s", 11_200, "ms"),
        (52.56, "hours", 2.19, "days"),
        (127.26, "kWh", 127_260, "Wh"),
    ],
)
def test_the_right_quantity_in_another_unit_is_told_apart(truth, unit, given, named):
    outcome = Task("?", number(truth, unit, within=0.01), "Think.", "").check(given)
    assert outcome.state == "wrong"
    assert f"You gave {named}; the question asks for {unit}." in str(outcome)
    assert "Think" not in str(outcome)


def test_a_plain_number_is_too_large_or_too_small():
    assert "too large" in str(check("01.adam_memory", 96))
    assert "too small" in str(check("01.adam_memory", 12))
    assert check("01.bytes_per_step", np.int64(4_799_528))


@pytest.mark.parametrize(
    "given", ["mirrored", "tf.distribute.MirroredStrategy", "Mirrored strategy"]
)
def test_a_name_may_be_written_in_full_or_in_short(given):
    judge = word("MirroredStrategy")
    judge(given)
    for wrong in ("MultiWorkerMirroredStrategy", 3):
        with pytest.raises(LabError):
            judge(wrong)


def test_right_wrong_and_open_differ_in_sign_word_and_border(monkeypatch):
    seen = []
    monkeypatch.setattr("IPython.display.display", lambda item, raw: seen.append(item))
    for answer in (48, "<b>", ...):
        check("01.adam_memory", answer)._ipython_display_()
    texts, pages = ([one[f"text/{kind}"] for one in seen] for kind in ("plain", "html"))
    assert len({text[0] for text in texts}) == 3
    assert len({page.partition("border-left: ")[2].split()[1] for page in pages}) == 3
    for word_, text, page in zip(
        ("Right.", "Not yet.", "Not answered yet."), texts, pages, strict=True
    ):
        assert word_ in text
        assert f"<strong>{word_}</strong>" in page
        assert f'aria-hidden="true">{text[0]}<' in page  # a screen reader says the word alone
    assert "<b>" not in pages[1]


@pytest.mark.parametrize(
    ("name", "told"),
    [(5, "got 5"), ("77.horse", "'77'"), ("01.horse", r"'01\.horse'.*01\.bytes_per_step")],
)
def test_an_unknown_task_is_named(name, told):
    with pytest.raises(LabError, match=told):
        check(name, 3)


@pytest.mark.parametrize("one", WRITTEN, ids=lambda one: one.task)
def test_an_untouched_cell_is_open_or_has_the_mistakes_to_fix(one):
    fix = one.task in ("06.fix_the_deadlock", "10.fix")
    assert check(one.task, value(one.source, one.name)).state == ("wrong" if fix else "open")


@pytest.mark.parametrize(
    ("one", "solution"),
    [pytest.param(one, text, id=one.task) for one in WRITTEN for text in one.solutions],
)
def test_the_solutions_in_the_notebooks_are_right(one, solution):
    outcome = check(one.task, value(solution, one.name))
    assert outcome, str(outcome)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_predicts_nothing_for_the_student(path):
    import nbformat

    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    for cell in cells:
        if "labkit.predict(" in cell.source:
            calls = [c for c in ast.walk(ast.parse(cell.source)) if isinstance(c, ast.Call)]
            guesses = [c.args[1] for c in calls if ast.unparse(c.func) == "labkit.predict"]
            assert {ast.unparse(guess) for guess in guesses} == {"..."}
