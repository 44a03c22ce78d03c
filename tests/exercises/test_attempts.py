"""Hints come one by one, a solution opens after an attempt, and a file keeps what was solved."""

import errno
import re
import subprocess
import sys
import threading
from pathlib import Path

import nbformat
import pytest

import labkit
from labkit import cli, plain
from labkit.exercises import attempts
from labkit.exercises.attempts import Attempts
from tests.exercises import cells

NAME, OTHER = "10.adam_memory", "20.star_steps"


def row_of(name, solved, tried):
    """The row of its lecture, as it is printed."""
    tasks = [one for one in labkit.exercises.tasks() if one[:2] == name[:2]]
    return [name[:2], str(solved), str(tried), str(len(tasks))]


@pytest.fixture(autouse=True)
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(attempts, "FILE", tmp_path / "labkit-progress.json")
    return attempts.FILE


def test_hints_come_one_by_one_up_to_the_last():
    task = labkit.exercises.tasks()[NAME]
    first, second, again = (str(labkit.hint(NAME)) for _ in range(3))
    assert task.hints[0] in first
    assert task.hints[1] not in first
    assert task.hints[0] in second
    assert task.hints[1] in second
    assert again == second


def test_a_verdict_names_the_next_step_and_gives_no_hint_by_itself():
    task = labkit.exercises.tasks()[NAME]
    text = str(labkit.check(NAME, 12))
    assert f'labkit.hint("{NAME}")' in text
    assert not any(hint in text for hint in task.hints)
    for _ in task.hints:
        labkit.hint(NAME)
    assert f'labkit.hint("{NAME}")' not in str(labkit.check(NAME, 12))


def test_a_solution_opens_after_an_attempt():
    task = labkit.exercises.tasks()[NAME]
    labkit.check(NAME, ...)
    labkit.hint(NAME)
    closed = labkit.solution(NAME)
    assert closed.state == "closed"
    assert task.why not in str(closed)
    labkit.check(NAME, 12)
    opened = labkit.solution(NAME)
    assert opened.code == task.solution.strip()
    assert opened.code in str(opened)
    assert not opened  # a solution that is read is not solved


def test_a_task_of_ones_own_is_judged_by_assertions_and_kept():
    guide = Path(labkit.__path__[0], "..", "CONTRIBUTING.md").read_text()
    task = cells.value(re.search(r"````python\n(.*?)````", guide, re.DOTALL)[1])["mine.my_mean"]
    for body, told in (
        ("return ...", "Not answered yet"),
        ("return 5", "The mean of 1, 2 and 6 is 3."),
        ("return 4\n    ...", "assert my_mean([5]) == 5\nThere is still a `...` in line 3."),
        ("return sun(times)", "NameError: name 'sun' is not defined at line 2: return sun(times)"),
    ):
        assert told in str(labkit.check(task, cells.value(f"def my_mean(times):\n    {body}\n")))
    assert task.hints[0] in str(labkit.hint(task))
    assert labkit.solution(task).code == task.solution
    assert labkit.check(task, cells.value(f"{task.solution}\n"))
    assert ("own", 1, 1, 1) in labkit.my_progress().rows


def test_what_was_solved_stays_solved_in_another_process(file):
    for answer in (48, 12):
        labkit.check(NAME, answer)
    labkit.hint(OTHER)
    program = f"import labkit; print(labkit.my_progress()); print(labkit.solution({NAME!r}).state)"
    environment = {"PYTHONPATH": str(labkit.__path__[0] + "/..")}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=file.parent, env=environment, capture_output=True,
        text=True, timeout=300, check=True,
    )  # fmt: skip
    lines = [line.split() for line in done.stdout.splitlines()]
    assert row_of(NAME, 1, 1) in lines
    assert row_of(OTHER, 0, 0) in lines
    assert lines[-1] == ["solution"]


def test_the_command_prints_the_progress_of_a_folder(file, capsys):
    labkit.check(NAME, 48)
    assert cli.main(["progress", str(file.parent)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert row_of(NAME, 1, 1) in lines
    bundle = labkit.my_progress(file.parent)._repr_mimebundle_()
    assert "<table" in bundle["text/html"]


def test_a_lecture_has_the_name_of_the_notebook_that_asks_its_tasks(file):
    asked = [nbformat.v4.new_code_cell(f'check("{name}", answer)') for name in (NAME, OTHER)]
    nbformat.write(nbformat.v4.new_notebook(cells=asked), file.parent / "44_new.ipynb")
    labkit.check(NAME, 48)
    rows = {row[0]: row[1:] for row in labkit.my_progress(file.parent).rows}
    assert rows["44_new"] == (1, 1, 2)
    assert rows[NAME[:2]] == (0, 0, int(row_of(NAME, 0, 0)[3]) - 1)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:40],
        lambda text: "[1, 2]",
        lambda text: 100_000 * "[",
        lambda text: text.replace('"tries": 1', '"tries": NaN'),
        lambda text: text.replace('"tries": 1', '"tries": "many"'),
    ],
)
def test_a_damaged_file_is_kept_beside_a_new_one(file, damage):
    labkit.check(NAME, 48)
    damaged = damage(file.read_text())
    for kept in ("labkit-progress-damaged-1.json", "labkit-progress-damaged-2.json"):
        file.write_text(damaged)
        outcome = labkit.check("10.steps_per_epoch", 1000)
        assert outcome
        assert kept in outcome.text
        assert file.with_name(kept).read_text() == damaged
    assert set(attempts.read(file)[0].tasks) == {"10.steps_per_epoch"}


def test_progress_of_the_old_numbers_is_kept_under_the_new_ones(file):
    old = {"10.ring": Attempts(2, solved=True), "14.my_share": Attempts(1), "own.mine": Attempts(3)}
    plain.write(file, attempts.Progress(old))  # 22.ring was 10.ring, and 10.my_memory another task
    labkit.hint("10.my_memory")
    assert attempts.read(file)[0].tasks == {
        "22.ring": Attempts(2, solved=True),
        "33.my_share": Attempts(1),
        "own.mine": Attempts(3),
        "10.my_memory": Attempts(hints=1),
    }


@pytest.mark.parametrize("numbering", [1, 2])
def test_progress_follows_the_tasks_of_pytorch_to_their_lectures_of_today(file, numbering):
    solved = [Attempts(tries, solved=True) for tries in range(1, 6)]
    of_two = ("50.sampler", "50.ddp", "51.sent", "51.fully_shard", "51.split")
    of_one = ("24.sampler", "24.ddp", "24.sent", "24.fully_shard", "24.split")
    old = dict(zip(of_one if numbering == 1 else of_two, solved, strict=True))
    plain.write(file, attempts.Progress(old, numbering=numbering))
    of_six = ("51.sampler", "50.ddp", "54.sent", "54.fully_shard", "55.split")
    assert attempts.read(file)[0].tasks == dict(zip(of_six, solved, strict=True))


def test_a_file_that_cannot_be_read_for_a_while_is_no_damage(file, monkeypatch):
    labkit.check(NAME, 48)
    before = file.read_text()

    def stale(path, **_):
        raise OSError(errno.ESTALE, "Stale file handle")

    with monkeypatch.context() as network:
        network.setattr(Path, "read_text", stale)
        assert "not kept" in labkit.check(NAME, 12).text
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    assert file.read_text() == before


def test_right_wrong_and_open_differ_in_sign_word_and_border(monkeypatch):
    seen = []
    monkeypatch.setattr("IPython.display.display", lambda item, raw: seen.append(item))
    shown = [labkit.check(NAME, 48), labkit.check(NAME, "<b>"), labkit.check(NAME)]
    shown += [labkit.hint(NAME), labkit.solution("35.header"), labkit.solution(NAME)]
    for outcome in shown:
        outcome._ipython_display_()
    texts, pages = ([one[f"text/{kind}"] for one in seen] for kind in ("plain", "html"))
    assert len({text[0] for text in texts[:3]}) == 3
    assert len({page.partition("border-left: ")[2].split()[1] for page in pages[:3]}) == 3
    for word, text, page in zip(
        ("Right.", "Not yet.", "Not answered yet.", "Hint", "Not open yet.", "Solution."),
        texts, pages, strict=True,
    ):  # fmt: skip
        assert word in text
        assert f"<strong>{word}</strong>" in page
        assert f'aria-hidden="true">{text[0]}<' in page  # a screen reader says the word alone
    assert "<b>" not in pages[1]


def test_where_nothing_can_be_written_verdicts_hints_and_solutions_come(file, monkeypatch):
    monkeypatch.setattr(attempts, "FILE", file / "no folder" / "progress.json")
    first, second = labkit.hint(NAME), labkit.hint(NAME)
    assert first.text != second.text
    assert labkit.solution(NAME).state == "closed"
    assert "not kept" in labkit.check(NAME, 12).text
    assert labkit.solution(NAME).state == "solution"
    assert row_of(NAME, 0, 1) in [line.split() for line in str(labkit.my_progress()).splitlines()]


def test_two_kernels_at_once_lose_no_change(file):
    def keep(name):
        for _ in range(20):
            attempts.change(name, lambda old: attempts.Attempts(tries=old.tries + 1))

    kernels = [threading.Thread(target=keep, args=(name,)) for name in (NAME, OTHER)]
    for one in kernels:
        one.start()
    for one in kernels:
        one.join()
    kept = attempts.read(file)[0].tasks
    assert [kept[name].tries for name in (NAME, OTHER)] == [20, 20]
