"""Lectures 09 and 10: what is handed in is tried, and what is wrong with it is said."""

import re
from pathlib import Path

import nbformat
import pytest

from labkit.exercises import Task, check, tasks

ROOT = Path(__file__).parents[2]
LECTURES = {"09": "09_many_workers", "10": "10_on_a_cluster"}
KNOWN = {**tasks("09"), **tasks("10")}
BY_HAND = {
    "09.global_batch": 768,
    "09.images_read": 60_000,
    "09.files": 3,
    "09.server_bytes": 1600,
    "09.which_strategy": "tf.distribute.experimental.CentralStorageStrategy",
    "09.which_fault": "hang",
    "09.failures": 52.56,
    "09.lost_work": 14.8,
    "09.how_often": 509.1,
    "10.ranks": 12,
    "10.rank_on_node": 8,
    "10.memory": 48,
    "10.cpus": 16,
    "10.time": 150,
    "10.first_cause": 2,
    "10.gpu_hours": 28,
    "10.done_after": 5.222,
    "10.longest_wait": 5.778,
    "10.soonest": 4,
}
WORKERS = {"worker": ["node1:23450", "node2:23450", "node3:23450"]}


def cells(lecture):
    return nbformat.read(ROOT / "notebooks" / f"{LECTURES[lecture]}.ipynb", as_version=4).cells


def handed_in(lecture):
    """(task, name of the answer, its cell, the solutions after it) for each written task."""
    found = []
    for cell in cells(lecture):
        call = re.search(r'^check\("([\w.]+)", (my_\w+)\)$', cell.source, re.MULTILINE)
        if cell.cell_type == "code" and call:
            found.append([*call.groups(), cell.source[: call.start()], []])
        elif "<details>" in cell.source:
            folded, _, _ = cell.source.partition("</details>")
            found[-1][3] += re.findall(r"```\n(.*?)```", folded, re.DOTALL)
    return found


def value(source, name):
    space = {"__name__": "__main__"}  # as in a notebook
    exec(compile(source, f"<{name}>", "exec"), space)
    return space[name]


ASKED = [one for lecture in LECTURES for one in handed_in(lecture)]


def test_every_written_task_is_asked_in_its_notebook_and_has_a_solution_there():
    written = {name for name, task in KNOWN.items() if not isinstance(task, Task)}
    assert {task for task, _, _, solutions in ASKED if solutions} == written


def test_every_other_task_is_asked_in_its_notebook():
    asked = {
        name
        for lecture in LECTURES
        for cell in cells(lecture)
        for name in re.findall(r'^check\("([\w.]+)", answer\)$', cell.source, re.MULTILINE)
    }
    assert asked == set(BY_HAND)


@pytest.mark.parametrize(
    ("task", "name", "text"),
    [
        pytest.param(task, name, text, id=f"{task}-{number}")
        for task, name, _, solutions in ASKED
        for number, text in enumerate(solutions, start=1)
    ],
)
def test_the_solutions_in_the_notebooks_are_right(task, name, text):
    outcome = check(task, value(text, name))
    assert outcome.state == "right", str(outcome)


@pytest.mark.parametrize(("task", "name", "source"), [(t, n, s) for t, n, s, _ in ASKED])
def test_an_untouched_cell_is_not_right(task, name, source):
    expected = "wrong" if task == "10.mend" else "open"
    assert check(task, value(source, name)).state == expected


@pytest.mark.parametrize(("name", "truth"), BY_HAND.items())
def test_the_numbers_are_those_worked_out_by_hand(name, truth):
    assert check(name, truth), str(check(name, truth))


def test_the_numbers_worked_out_by_hand_are_all_that_there_are():
    numbers = {name for name, task in KNOWN.items() if isinstance(task, Task)}
    assert set(BY_HAND) == numbers


@pytest.mark.parametrize("name", KNOWN)
def test_an_unanswered_task_shows_its_question_and_a_horse_is_wrong(name):
    assert KNOWN[name].question in str(check(name, ...))
    assert check(name, "a horse").state == "wrong"


@pytest.mark.parametrize(
    ("task", "told"),
    [
        ({"type": "worker", "index": 2}, "it is that of worker 2"),
        ({"type": "worker", "index": 3}, "The task is worker 3, and the cluster has worker 0 to"),
        ({"type": "workers", "index": 1}, "Write 'worker'."),
    ],
)
def test_a_wrong_task_is_told(task, told):
    assert told in str(check("09.second_of_three", {"cluster": WORKERS, "task": task}))


def test_a_tf_config_of_other_machines_is_told():
    one = {"cluster": {"worker": ["node1:1", "node2:2"]}, "task": {"type": "worker", "index": 1}}
    text = str(check("09.second_of_three", one))
    assert "the addresses of worker are ['node1:1', 'node2:2']" in text


def test_numbers_of_numpy_are_numbers_too():
    import numpy as np

    def arrays(rank, ranks, images):
        return np.array_split(np.arange(images), ranks)[rank]

    assert check("09.my_share", arrays)
    assert "numbers of images" in str(check("09.my_share", lambda rank, ranks, images: "all"))


def whole_parts(rank, ranks, images):
    each = images // ranks
    return range(rank * each, (rank + 1) * each)


@pytest.mark.parametrize(
    ("share", "told"),
    [
        (lambda rank, ranks, images: range(images), "is given to two ranks"),
        (whole_parts, "nobody gets image 8"),
        (lambda rank, ranks, images: range(images) if rank == 0 else [], "one rank has 0 images"),
        (lambda rank, ranks, images: 1 / 0, "It raised ZeroDivisionError in its line 1"),
    ],
)  # fmt: skip
def test_an_unfair_share_is_told(share, told):
    assert told in str(check("09.my_share", share))


def test_a_count_that_misses_or_repeats_numbers_is_told():
    def all_of_them(rank):
        return sum(all(n % d for d in range(2, int(n**0.5) + 1)) for n in range(2, 20_000))

    assert "which are too many" in str(check("09.count_primes", all_of_them))


def test_an_error_of_a_rank_is_told_with_its_rank():
    def breaks(rank):
        if rank == 2:
            raise ZeroDivisionError("oh")
        return 0

    text = str(check("09.count_primes", breaks))
    assert "ank 2" in text
    assert "ZeroDivisionError" in text


def test_machines_in_another_order_or_with_another_name_are_told():
    assert "order" in str(check("10.hosts", ["gpu5", "node01", "node02", "node03", "node07"]))
    assert "'node1' is not in" in str(check("10.hosts", ["node1"]))


def test_a_config_that_knows_one_task_on_each_machine_only_is_told():
    from labkit.cluster.tf_config import from_hosts, hosts_of

    def one_each(environ):
        return from_hosts(list(hosts_of(environ["SLURM_JOB_NODELIST"])), index=0).content()

    assert "it names 2 tasks" in str(check("10.my_config", one_each))
