"""What is handed in is tried, and told by example what it does wrong: functions and TF_CONFIGs."""

import threading
import time
from contextlib import suppress

import nbformat
import numpy as np
import pytest
from jupyter_client.provisioning import local_provisioner
from nbclient import NotebookClient

from labkit import collectives, memory
from labkit.choosing import large_systems
from labkit.exercises import check, tasks
from labkit.exercises.judges import answers
from labkit.exercises.judges.answers import same_as
from labkit.exercises.judges.server_loop import run_with_processes
from labkit.kinds import LabError
from tests import warm_kernel
from tests.exercises.cells import changed, refused, value

WORKERS = {"worker": ["node1:23450", "node2:23450", "node3:23450"]}


def _calls_exit(delay):
    raise SystemExit


def _lab_error(delay):
    raise LabError("Something of the user's world.")


def _ports_of_ranks(environ):
    from labkit.cluster.ranks.tf_config import hosts_of

    hosts, tasks = hosts_of(environ["SLURM_JOB_NODELIST"]), int(environ["SLURM_NTASKS"])
    machines = [host for host in hosts for _ in range(tasks // len(hosts))]
    workers = [f"{host}:{23450 + rank}" for rank, host in enumerate(machines)]
    return _config({"worker": workers}, type="worker", index=int(environ["SLURM_PROCID"]))


def _not_above(sizes, limit):
    buckets = [[]]
    for size in sizes:
        if buckets[-1] and sum(buckets[-1]) + size > limit:
            buckets.append([])
        buckets[-1].append(size)
    return buckets


def _config(cluster=WORKERS, **task):
    return {"cluster": cluster, "task": task}


@pytest.mark.parametrize(
    ("task", "answer", "told"),
    [
        ("23.my_buckets", _not_above, ["right is [[3, 3, 3], [3, 3]]"]),
        ("31.my_step", _calls_exit, ["SystemExit at line", "raise SystemExit"]),
        ("31.my_step", _lab_error, ["Something of the user's world."]),
        ("31.my_step", lambda delay: 1 / (delay + 1), ["oscillates"]),
        ("32.second_of_three", _config(type="worker", index=2), ["it is that of worker 2"]),
        ("33.my_share", lambda rank, ranks, images: range(images), ["is given to 3 ranks"]),
        ("32.count_primes", "return 0 if rank else 1695", ["rank has done most"]),
        ("35.my_config", _ports_of_ranks, ["node02:23452, and should be node02:23450"]),
    ],
)
def test_what_is_wrong_is_refused_with_the_reason(task, answer, told):
    if task == "32.count_primes":
        # Of a notebook: ranks would import this module to find a function of it.
        answer = value(f"def my_count(rank):\n    {answer}\n")
    refused(task, answer, *told)


def test_a_slip_is_told_to_whoever_makes_it_in_all_cases_only():
    below_the_middle = changed("01.my_median", "len(", "-1 + len(")
    assert "Sort the times" not in refused("01.my_median", below_the_middle).text


def _loops(delay):
    while True:
        delay += 1


def _loops_and_swallows_errors(delay):
    while True:
        with suppress(Exception):
            delay += 1


def _sleeps(delay):
    time.sleep(1000)


@pytest.mark.parametrize("never_ends", [_loops, _loops_and_swallows_errors, _sleeps])
def test_a_function_that_does_not_end_is_stopped_and_what_runs_next_is_not(never_ends):
    judge = answers.function(lambda called: called(1), seconds=0.1)
    with pytest.raises(LabError, match="was not done"):
        judge(never_ends)
    assert sum(range(100_000)) == 4_999_950_000


def test_an_answer_that_ends_at_its_limit_is_judged_and_nothing_is_interrupted(monkeypatch):
    monkeypatch.setattr(answers, "ended_within", lambda seconds, wait, thread: not wait(60))
    before = set(threading.enumerate())
    assert answers.judged(lambda answer: answer(), 9.0)(lambda: "judged") == "judged"
    for one in set(threading.enumerate()) - before:
        one.join()


def test_the_kernel_outlives_exceptions_and_waiting_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(local_provisioner, "launch_kernel", warm_kernel.launch)
    name = "31.my_step"
    cells = [
        "import time, labkit\nfrom labkit.exercises.judges import answers",
        f"labkit.check('{name}', lambda delay: 1 / 0)",
        "judge = answers.function(lambda called: called(1), seconds=0.1)",
        "try: judge(lambda _: time.sleep(99))\nexcept labkit.LabError as fault: print(fault)",
        "labkit.my_progress()",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": tmp_path}}).execute()
    verdict, stopped, progress = (notebook.cells[n].outputs[0] for n in (1, 3, 4))
    assert "It raised ZeroDivisionError" in verdict.data["text/plain"]
    assert "was not done" in stopped.text
    rows = [line.split() for line in progress.data["text/plain"].splitlines()]
    assert [name[:2], "0", "1"] in [row[:3] for row in rows]


def test_arrays_of_numpy_are_lists_of_numbers():
    assert check("33.my_share", lambda rank, of, images: np.array_split(range(images), of)[rank])


def test_a_server_may_return_a_list_of_both():
    def my_server(inbox, weights, rate):
        staleness = []
        for message in inbox:
            if message.kind == "push":
                staleness.append(np.int64(len(staleness) - message.version))
                weights -= rate * message.gradient
            else:
                message.reply(weights.tolist(), len(staleness))
        return [weights, np.array(staleness)]

    assert check("30.my_server", my_server)


def test_a_right_server_serves_processes():
    text = run_with_processes(changed("30.my_server", "", ""), workers=2, updates=30, compute=0.001)
    assert "2 workers and your server: 30 pushes" in text
    assert "measured on" in text


def test_what_a_function_does_to_its_arguments_does_not_reach_the_next_answer():
    judge = same_as("total = sum", [([1.0, 2.0],), ([3.0],)])

    def empties(times):
        found = sum(times)
        times.clear()
        return found

    judge(empties)
    judge(sum)


def test_what_makes_a_comparison_invalid_is_a_list_and_the_first_wrong_one_is_named():
    refused("14.defects", [1, 2, 3, 6], "5 is not in")
    refused("14.defects", [1, 2, 3, 4, 5, 6], "4 is not a defect")
    assert check("14.defects", [6, 5, 3, 2, 1])


def test_the_worked_solutions_of_44_and_45_are_what_the_library_computes():
    step, slowest, interval, goodput, activations, my_mfu = (
        answers.solved(tasks()[name].solution)
        for name in (
            "45.buckets_overlap",
            "45.straggler",
            "45.young",
            "45.my_goodput",
            "44.activations",
            "44.my_mfu",
        )
    )
    layers = [(2.0, 30.0), (1.5, 15.0), (3.25, 52.0), (0.75, 5.0)]
    for limit in (0, 20, 30, 45, 99):
        # Two ranks in a ring take twice the latency, and each sends one whole buffer.
        right = collectives.overlap(layers, 2, limit, latency=0.2, bandwidth=8.0).seconds
        assert step(layers, limit, 0.4, 8.0) == pytest.approx(right)
    assert slowest([3.0, 1.0, 2.0], 5) == pytest.approx(
        large_systems.expected_slowest([3.0, 1.0, 2.0], 5)
    )
    job = 50_000 * 3600 / 128
    assert interval(50_000, 128, 60) == pytest.approx(
        large_systems.checkpoint_interval(job, write=60)
    )
    gaps = [480.0, 20.0, 139.0, 1000.0]
    kept = large_systems.simulate_failures(100, gaps, write=10, restart=30).training
    assert goodput(100, 10, 30, gaps) == pytest.approx(kept)
    shape = {"hidden": 6144, "heads": 64, "sequence": 2048}
    kept = memory.activations_per_layer(**shape, micro_batch=4, tensor=8)
    assert activations(6144, 64, 2048, 4, 8) == pytest.approx(kept)
    model = memory.transformer(**shape, layers=48, vocabulary=51200, micro_batches=4, tensor=8)
    whole = memory.mfu(model, seconds=1.1, gpus=8, peak=312e12)
    words = 51200 * 6144  # the paper counts the FLOPs of the head, and not those of the embedding
    rough = my_mfu(model.parameters - words, 48, 6144, 2048, 4 * 2048 / 1.1, 8, 312e12)
    assert rough == pytest.approx(whole, rel=0.03)
