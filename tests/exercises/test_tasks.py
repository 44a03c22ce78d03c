"""Every task: its solution is right, other answers are wrong, and an empty cell is no attempt."""

import ast
import math
import os
import re
from functools import cache
from importlib import import_module
from pathlib import Path

import cloudpickle
import numpy as np
import pytest

from labkit import environments, exercises, memory, updates
from labkit.collectives import crossover
from labkit.exercises import Task, attempts, check, tasks
from labkit.exercises.judges import frameworks, over_links
from labkit.exercises.judges.answers import number, word
from labkit.kinds import LabError
from tests.cluster.test_links import NO_LINKS
from tests.exercises.cells import ASKED, NOTEBOOKS, changed, refused, value
from tests.test_environments import HERE, Recipe

pytestmark = pytest.mark.usefixtures("four")
TASKS = tasks()
NUMBERS = [name for name, task in TASKS.items() if re.search('(^|\n)answer = [^"]', task.solution)]
# Their judges start TensorFlow in processes: test_cluster_loops has their answers.
CLUSTER_LOOPS = ("14.worker_loop", "15.schedule", "15.restart")
DIFFERENT = {(task.judge, task.solution): name for name, task in TASKS.items()
             if name not in CLUSTER_LOOPS}.values()  # fmt: skip
SLIPS = [(name, slip) for name, task in TASKS.items() for slip in task.slips]
# Judges with processes tell errors of their own (as that of `tiny` below).
WRITTEN = [
    one
    for one in ASKED
    if re.search("^def ", one.source, re.MULTILINE)
    and not TASKS[one.task].environment
    and one.task not in CLUSTER_LOOPS
]
# Lines of the solution that another one, given below it in a comment, replaces.
REPLACED = {"09.fix_the_deadlock": 1, "09.all_reduce_from_two": 2, "13.my_step": 1}
OTHERWISE = re.compile(r"^ +# Or\b.*:\n((?: +#     .*\n)+)", re.MULTILINE)


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(over_links, "ELEMENTS", 60_001)
    monkeypatch.setattr(over_links, "ROUNDS", 1)


@cache
def solved(name):
    return value(TASKS[name].solution.strip() + "\n")


def with_line(source, line):
    """The source of a cell with one more line at the top of its last function, if it has one."""
    functions = [one for one in ast.parse(source).body if isinstance(one, ast.FunctionDef)]
    lines = source.splitlines()
    if functions:
        lines.insert(functions[-1].body[0].lineno - 1, f"    {line}")
    return "\n".join([*lines, ""])


def test_each_task_is_asked_once():
    assert sorted(one.task for one in ASKED) == sorted(TASKS)


def test_the_tasks_of_a_notebook_are_in_the_file_of_its_name():
    for path in NOTEBOOKS:
        if path.stem[2] != "_":
            continue  # the second half of a lecture: its tasks are in the file of the first
        module = import_module(f"labkit.exercises.lectures.lecture_{path.stem}")
        assert list(module.TASKS) == [name for name in TASKS if name[:2] == path.stem[:2]]


@pytest.mark.parametrize("name", DIFFERENT)
def test_the_worked_solution_is_accepted_also_where_a_blank_is_left(name):
    outcome = TASKS[name].check(value(with_line(TASKS[name].solution.strip(), "...")))
    needed = os.environ.get("LABKIT_REQUIRE_ENVIRONMENTS") == "1"
    missing = TASKS[name].environment and not needed
    if outcome.state == "elsewhere" and (missing or NO_LINKS):
        pytest.skip(str(outcome))
    assert outcome, str(outcome)
    assert TASKS[name].why in str(outcome)


def test_another_answer_is_not_and_the_verdict_keeps_the_answer_to_itself():
    for name, task in TASKS.items():
        wrong = ["a horse", None, [1, 2], -1, math.nan]
        if name in NUMBERS:
            wrong += [1.06 * solved(name), solved(name) / 1.06, 1e30]
        for answer in wrong:
            outcome = task.check(answer)
            assert outcome.state == "wrong", (name, answer)
            assert task.question in outcome.text
            assert task.why not in outcome.text


@pytest.mark.parametrize(("name", "slip"), SLIPS)
def test_a_usual_mistake_is_told(name, slip):
    wrong = changed(name, *slip) if isinstance(slip, tuple) else slip
    refused(name, wrong, TASKS[name].slips[slip])


def test_a_task_has_a_difficulty_and_up_to_three_hints():
    for task in TASKS.values():
        assert task.difficulty in (1, 2, 3), task
        assert 1 <= len(set(task.hints)) == len(task.hints) <= 3, task


def test_an_untouched_cell_is_no_attempt(tmp_path, monkeypatch):
    monkeypatch.setattr(attempts, "FILE", tmp_path / "progress.json")
    for one in ASKED:
        outcome = check(one.task, value(one.source))
        state = "wrong" if TASKS[one.task].given else "open"
        assert outcome.state == state, (one.task, outcome)
        assert TASKS[one.task].question in outcome.text
        assert not attempts.FILE.exists()


@pytest.mark.parametrize("one", WRITTEN, ids=lambda one: one.task)
def test_what_is_wrong_beside_a_blank_is_told(one):
    answer = value(with_line(one.source, "undefined"))
    outcome = TASKS[one.task].check(answer)
    if outcome.state != "elsewhere":
        assert "NameError: name 'undefined' is not defined" in outcome.text
        assert ("There is still a `...` in line" in outcome.text) == ("..." in one.source)


@pytest.mark.parametrize("name", REPLACED)
def test_the_other_solution_that_a_comment_gives_is_right_too(name):
    solution = TASKS[name].solution
    other = OTHERWISE.search(solution)
    lines = [line.replace("#     ", "", 1) for line in other[1].splitlines()]
    kept = solution[: other.start()].splitlines()[: -REPLACED[name]]
    outcome = TASKS[name].check(value("\n".join([*kept, *lines, ""])))
    assert outcome, str(outcome)


def _slow_staleness():
    run = updates.simulate(workers=4, mode="async", slow={3: 5.0}, updates=200)
    return max(run.staleness_counts(3))


def _bounded():
    run = updates.simulate(
        workers=2, mode="ssp", bound=3, compute=0.010, slow={1: 4.0}, updates=2000
    )
    return len(run.of(0)) / run.seconds


def _crossover():
    link = {"latency": 2e-6, "bandwidth": 50e9}
    return crossover("ring_all_reduce", "tree_all_reduce", ranks=256, **link) / 1e6


COMPUTED = {
    "01.adam_memory": lambda: memory.footprint(3e9, convention="float32 adam").state / 1e9,
    "11.crossover": _crossover,
    "21.zero_2": lambda: (
        memory.footprint(7.5e9, convention="mixed adam 16", data=16, zero=2).total / 1e9
    ),
    "21.days": lambda: (
        memory.time_to_train(parameters=70e9, tokens=1.4e12, gpus=1024, flops=400e12) / 86_400
    ),
    "13.limit_by_hand": lambda: updates.stability_limit(2),
    "13.slow_staleness": _slow_staleness,
    "13.bounded_staleness": _bounded,
}


@pytest.mark.parametrize("name", COMPUTED)
def test_what_labkit_itself_computes_is_right(name):
    assert TASKS[name].check(COMPUTED[name]())


@pytest.mark.parametrize(
    ("truth", "unit", "given", "named"),
    [
        (25, "%", 0.25, "a share of 1"),
        (4.8, "MB", 4.8e6, "bytes"),
        (4_799_528, "bytes", 4_799_528 * 8, "bits"),
        (11.2, "s", 11_200, "ms"),
        (127.26, "kWh", 127_260, "Wh"),
    ],
)
def test_the_right_quantity_in_another_unit_is_told_apart(truth, unit, given, named):
    with pytest.raises(LabError, match=f"You gave {named}; the question asks for {unit}"):
        number(truth, unit, within=0.01)(given)


def test_a_plain_number_is_too_large_or_too_small_and_may_be_numpys():
    assert "too large" in str(TASKS["01.adam_memory"].check(96))
    assert "too small" in str(TASKS["01.adam_memory"].check(12))
    assert TASKS["01.bytes_per_step"].check(np.int64(4_799_528))


@pytest.mark.parametrize(
    "given", ["mirrored", "tf.distribute.MirroredStrategy", "Mirrored strategy"]
)
def test_a_name_may_be_written_in_full_or_in_short(given):
    judge = word("MirroredStrategy")
    judge(given)
    for wrong in ("MultiWorkerMirroredStrategy", 3):
        with pytest.raises(LabError):
            judge(wrong)


def test_a_judge_that_cannot_read_an_answer_says_so():
    class Strange:
        def __float__(self):
            raise ZeroDivisionError("no number")

    outcome = Task("?", number(1), (), "", "").check(Strange())
    assert outcome.state == "wrong"
    assert "ZeroDivisionError: no number" in outcome.text


@pytest.mark.parametrize(
    ("name", "told"),
    [(5, "5"), ("77.horse", "'77"), ("01.horse", r"'01\.horse'.*01\.bytes_per_step")],
)
def test_an_unknown_task_is_named(name, told):
    with pytest.raises(LabError, match=told):
        check(name, 3)


def _square_judge(answer):
    def twice(rank, answer):
        return answer(rank), answer(rank + 1)

    assert frameworks.run("tiny", twice, answer, ranks=2) == [(0, 1), (1, 4)]


def test_a_task_of_another_framework_is_judged_on_its_ranks_where_it_is_built(
    tmp_path, monkeypatch
):
    task = Task("?", _square_judge, ("!",), "x = 1", "why", environment="tiny")
    Recipe(tmp_path / "tiny").write()
    monkeypatch.setattr(environments, "FOLDER", tmp_path)
    monkeypatch.setattr(exercises, "tasks", lambda: {"23.square": task})
    monkeypatch.setattr(attempts, "FILE", tmp_path / "progress.json")
    square = value("def square(x):\n    return x * x\n")
    outcome = check("23.square", square)
    assert outcome.state == "elsewhere"
    assert "labkit env build tiny" in str(outcome)
    assert not attempts.FILE.exists()
    assert exercises.solution("23.square").code == "x = 1"

    venv = environments.build("tiny", lambda _: None).venv
    [packages] = venv.glob("lib/*/site-packages")
    (packages / "cloudpickle").symlink_to(Path(cloudpickle.__file__).parent)
    stamp = venv / "labkit.json"  # as if of another version, to which functions go as their source
    stamp.write_text(stamp.read_text().replace(f'"{HERE}.', '"3.2.'))
    assert exercises.solution("23.square").state == "closed"
    assert check("23.square", value("def square(x):\n    return ...\n")).state == "open"
    assert check("23.square", square)
    wrong = check("23.square", value("def square(x):\n    return 4 // (2 - x)\n"))
    assert wrong.state == "wrong"
    assert "Rank 1 raised ZeroDivisionError" in wrong.text
