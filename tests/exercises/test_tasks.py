"""Every task: its solution is right, other answers are wrong, and an empty cell is no attempt."""

import ast
import math
import os
import re
from functools import cache
from pathlib import Path

import cloudpickle
import numpy as np
import pytest

from labkit import environments, exercises, memory, updates
from labkit.collectives import crossover
from labkit.exercises import Task, attempts, check, tasks
from labkit.exercises.judges import frameworks, over_links
from labkit.exercises.judges.answers import number, plain, same, word
from labkit.exercises.lecture_tasks import FOLDER, texts
from labkit.exercises.text import load, read
from labkit.kinds import LabError
from tests.cluster.test_links import NO_LINKS
from tests.exercises.cells import ASKED, NOTEBOOKS, value
from tests.test_environments import HERE, Recipe

pytestmark = pytest.mark.usefixtures("four")
TASKS = tasks()
NUMBERS = [name for name, task in TASKS.items() if re.search('(^|\n)answer = [^"[]', task.solution)]
CLUSTER_LOOPS = ("33.worker_loop", "34.schedule", "34.restart")
DIFFERENT = {(texts()[name].code.get("python judge"), task.solution): name
             for name, task in TASKS.items()}.values()  # fmt: skip
# Judges with processes tell errors of their own (as that of `tiny` below).
WRITTEN = [
    one
    for one in ASKED
    if re.search("^def ", one.source, re.MULTILINE)
    and not TASKS[one.task].environment
    and one.task not in CLUSTER_LOOPS
]
WRITTEN_ONCE = sorted({one.task for one in WRITTEN} & {*DIFFERENT})
# Lines of the solution that another one, given below it in a comment, replaces.
REPLACED = {"21.fix_the_deadlock": 1, "21.all_reduce_from_two": 2, "31.my_step": 1}
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


def test_a_question_is_not_cut_by_a_line_that_begins_like_a_hint():
    assert [name for name, one in TASKS.items() if one.question.strip()[-1] not in ".?:)"] == []


def test_a_task_stands_in_the_file_of_the_notebook_that_asks_it():
    for path in NOTEBOOKS:
        if path.stem != "capstone" and (asked := set(attempts.asked_in(path)) & set(TASKS)):
            assert asked == {one.name for one in read(FOLDER / f"{path.stem}.md")}


@pytest.mark.parametrize("name", [name for name, one in texts().items() if one.code.get("pycon")])
def test_the_solution_gives_the_results_that_stand_in_the_session(name):
    one, shown = texts()[name], 0
    for calls, want in one.session(one.names()):
        if want:
            [call] = calls
            assert same(plain(solved(name)(*call)), plain(ast.literal_eval(want)), 1e-6), call
            shown += 1
    assert shown


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


@pytest.mark.parametrize("name", WRITTEN_ONCE)
def test_a_function_without_its_last_statement_is_wrong(name):
    """A horse is refused by any judge; a program that does nearly all is refused by a real one."""
    tree = ast.parse(TASKS[name].solution)
    tree.body[-1].body[-1:] = [ast.Pass()]
    outcome = TASKS[name].check(value(ast.unparse(tree) + "\n"))
    assert outcome.state == "wrong" or (NO_LINKS and outcome.state == "elsewhere"), outcome


def test_a_task_has_a_difficulty_and_up_to_three_hints():
    for task in TASKS.values():
        assert task.difficulty in (1, 2, 3), task
        assert 1 <= len(set(task.hints)) == len(task.hints) <= 3, task


def test_what_a_cell_comes_with_stands_in_its_solution():
    for one in ASKED:
        known = f"{TASKS[one.task].solution}\n{TASKS[one.task].given}"
        code = (line.partition("#")[0].strip() for line in one.source.splitlines())
        rest = [
            line for line in code if "..." not in line and not line.startswith(("import", "from"))
        ]
        assert [line for line in rest if line not in known] == [], one.task


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


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("20.tree_broadcast", "have = 1"),
        ("40.one_f_one_b", "ahead = stages - 1 - rank"),
        ("12.fill", "pass"),
    ],
)
def test_half_a_solution_before_a_blank_is_an_answer(name, line):
    [cell] = [one.source for one in ASKED if one.task == name]
    assert TASKS[name].check(value(with_line(cell, line))).state == "wrong"


@pytest.mark.parametrize("name", REPLACED)
def test_the_other_solution_that_a_comment_gives_is_right_too(name):
    solution = TASKS[name].solution + "\n"
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
    "10.adam_memory": lambda: memory.footprint(3e9, convention="float32 adam").state / 1e9,
    "23.crossover": _crossover,
    "44.zero_2": lambda: (
        memory.footprint(7.5e9, convention="mixed adam 16", data=16, zero=2).total / 1e9
    ),
    "44.days": lambda: (
        memory.time_to_train(parameters=70e9, tokens=1.4e12, gpus=1024, flops=400e12) / 86_400
    ),
    "31.limit_by_hand": lambda: updates.stability_limit(2),
    "31.slow_staleness": _slow_staleness,
    "31.bounded_staleness": _bounded,
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
    assert "too large" in str(TASKS["10.adam_memory"].check(96))
    assert "too small" in str(TASKS["10.adam_memory"].check(12))
    assert TASKS["10.bytes_per_step"].check(np.int64(4_799_528))
    assert all(TASKS["14.cpu_seconds"].check(seconds) for seconds in (6, 14))  # 14: waits spin


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
    [(5, "5"), ("77.horse", "'77"), ("10.horse", r"'10\.horse'.*10\.bytes_per_step")],
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
    monkeypatch.setattr(exercises, "personal", lambda _: task)
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
    outcome = check("23.square", square)
    assert outcome.state == "elsewhere", "it can be built with this Python"
    assert "tiny is outdated" in str(outcome)
    Recipe(tmp_path / "tiny").write(python="3.2")
    assert exercises.solution("23.square").state == "closed"
    assert check("23.square", value("def square(x):\n    return ...\n")).state == "open"
    assert check("23.square", square)
    wrong = check("23.square", value("def square(x):\n    return 4 // (2 - x)\n"))
    assert wrong.state == "wrong"
    assert "Rank 1 raised ZeroDivisionError" in wrong.text


OWN = """## my_double
`function(twice)`

Write my_double(x).
1. Add.
```python
def my_double(x):
    return 2 * x
```
- `2 *` -> `2 +` Multiply.

Twice.
"""


def test_a_file_of_ones_own_is_judged_and_its_progress_kept_by_its_name(tmp_path, monkeypatch):
    monkeypatch.setattr(attempts, "FILE", tmp_path / "progress.json")
    judge = "def twice(answer):\n    assert answer(4) == 8, 'No.'\n"
    file = tmp_path / "mine.md"
    file.write_text(f"# mine · Numbers\n\n```python\n{judge}```\n{OWN}", encoding="utf-8")
    task = load(file)["mine.my_double"]
    assert check(task, lambda x: x + x)
    assert "No." in check(task, lambda x: x * x).text
    assert attempts.read(attempts.FILE)[0].tasks["own.mine.my_double"].tries == 2


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("1. Add.\n", "", "a task is"),
        ("function(twice)", "function(once)", "NameError"),
        ("`2 *`", "`3 *`", "'3 \\*' is not in the solution"),
        ("- `2", "+ steps > 3 Too many.\n- `2", "a condition is `condition` words"),
        ("- `2", "+ `steps >` Too many.\n- `2", "SyntaxError"),
    ],
)
def test_a_text_that_is_no_task_is_named_with_its_line(old, new, told):
    with pytest.raises(LabError, match=f"line 3.*{told}"):
        load("\n\n" + OWN.replace("twice", "print").replace(old.replace("twice", "print"), new))


def test_a_file_without_tasks_is_named(tmp_path):
    (tmp_path / "none.md").write_text("# mine · Numbers\n")
    for name, told in (
        ("none.md", "none.md:1 and below have no task"),
        ("away.md", "cannot be read"),
    ):
        with pytest.raises(LabError, match=told):
            load(tmp_path / name)
