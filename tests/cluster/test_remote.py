"""The contract of a rank under any launcher: signed messages in a folder, and a watcher."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import labkit
from labkit import LabError
from labkit.cluster import alive
from labkit.cluster.engine import Ended, Raised, Ready, Returned, Stack
from labkit.cluster.folder import RunFolder
from labkit.cluster.folder_run import FolderRun
from labkit.cluster.rank import account_of, result_of
from labkit.cluster.remote import Task, number_of_this_rank
from labkit.shipping import pack_program
from tests.cluster.private_slurm import wait_for

ROOT = Path(labkit.__file__).parent.parent


@pytest.fixture
def folder(tmp_path):
    return RunFolder.new(tmp_path)


def started(folder, program, *args, ranks=1, key=None):
    """The run, and its ranks started by hand as srun would."""
    run = FolderRun(folder, ranks)
    changes = tuple({"LABKIT_TOLD": str(rank), "HOME": None} for rank in range(ranks))
    run.describe(Task(pack_program(program, args), ranks, changes, (), 60.0))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **folder.environment()}
    if key:
        environment["LABKIT_RUN_KEY"] = key
    command = [sys.executable, "-m", "labkit.cluster.remote", str(folder.path)]
    processes = [
        subprocess.Popen(
            command,
            env={**environment, "SLURM_PROCID": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    return run, processes


def heard(run, kind, seconds=30):
    """Events up to the first of this kind."""
    events = []
    until = time.monotonic() + seconds
    while not any(isinstance(event, kind) for event in events):
        assert time.monotonic() < until, events
        events += run.wait(0.2)
    return events


def tells(rank):
    os.write(1, b"half")
    print(
        " a line", os.environ["LABKIT_TOLD"], "HOME" in os.environ, "LABKIT_RUN_KEY" in os.environ
    )
    return rank * 10


def sleeps(rank):
    subprocess.Popen(["sleep", "600"])
    time.sleep(600)


def test_a_message_that_somebody_else_wrote_is_not_used(folder):
    folder.write("job", b"content")
    assert folder.read("job") == b"content"
    (folder.path / "job").rename(folder.path / "go")  # signed, but as another message
    with pytest.raises(LabError, match="was not written by this run"):
        folder.read("go")
    with pytest.raises(LabError):
        RunFolder(folder.path, b"another key").read("go")


def test_a_folder_that_others_can_enter_is_refused(folder, monkeypatch):
    monkeypatch.setenv("LABKIT_RUN_KEY", "00")
    folder.path.chmod(0o755)
    with pytest.raises(LabError, match="can be entered by others"):
        RunFolder.of_this_rank(str(folder.path))


def test_a_rank_runs_its_program_and_stays_until_all_is_over(folder):
    run, (process,) = started(folder, tells)
    events = heard(run, Returned)
    assert isinstance(events[0], Ready)
    assert events[-1].rank == 0
    assert result_of(events[-1].payload)[0] == 0
    assert b"".join(e.data for e in events if hasattr(e, "data")) == b"half a line 0 False False\n"
    assert process.poll() is None
    run.end(10, lambda: False)
    assert process.wait(10) == 0
    assert [type(event) for event in run.look()] == [Ended]


def test_no_rank_begins_before_all_are_there(folder):
    run, processes = started(folder, tells, ranks=2)
    assert "go" not in folder.names()
    heard(run, Returned)
    assert {"ready0", "ready1", "go"} <= folder.names()
    run.end(10, lambda: False)
    assert [process.wait(10) for process in processes] == [0, 0]


def test_an_exception_and_an_end_are_told(folder):
    run, (process,) = started(folder, lambda rank: {}["missing"])
    events = heard(run, Ended)
    raised = next(event for event in events if isinstance(event, Raised))
    assert account_of(raised.payload).sentence == "KeyError: 'missing'"
    assert events[-1] == Ended(0, 1)
    run.end(10, lambda: False)
    process.wait(10)


def test_a_rank_says_where_it_is_and_obeys(folder):
    run, (process,) = started(folder, sleeps)
    heard(run, Ready)
    stack = ""
    while "in sleeps" not in stack:
        run.request("stacks", [0])
        stack += "".join(e.text for e in heard(run, Stack) if isinstance(e, Stack))
    run.request("pause", [0])
    wait_for(lambda: _state(folder) == psutil.STATUS_STOPPED, "a stopped rank")
    run.request("stacks", [0])
    assert any(e.stopped for e in heard(run, Stack) if isinstance(e, Stack))
    run.request("kill", [0])
    assert heard(run, Ended)[-1] == Ended(0, -9)
    run.end(10, lambda: False)
    process.wait(10)


def _state(folder):
    return psutil.Process(json.loads(folder.read("ready0"))["pid"]).status()


@pytest.mark.parametrize("way", ["folder", "folder, between two looks", "watcher"])
def test_a_rank_ends_with_all_it_started_when_nobody_waits_for_it(folder, way, tmp_path):
    run, (process,) = started(folder, sleeps)
    heard(run, Ready)
    rank = psutil.Process(json.loads(folder.read("ready0"))["pid"])
    wait_for(rank.children, "a process of the rank's own")
    family = [rank, *rank.children()]
    if way == "folder":
        folder.remove()
    elif way == "folder, between two looks":
        (folder.path / "over").symlink_to("nowhere")  # a name that was there, and its file is gone
    else:
        process.terminate()
    process.wait(10)
    _, alive_still = psutil.wait_procs(family, 10)
    assert alive_still == []


def test_a_rank_with_another_key_runs_nothing(folder):
    _, (process,) = started(folder, tells, key="00" * 32)
    assert process.wait(30) != 0
    assert "was not written by this run" in process.stderr.read()


def test_who_asks_is_missed_when_the_count_stands_still(tmp_path):
    watch = alive.Watch(tmp_path, patience=0.4)
    for number in range(8):  # twice its patience, and the count goes on
        alive.count(tmp_path, number)
        until = time.monotonic() + 0.1
        wait_for(lambda until=until: watch.is_over() or time.monotonic() > until, "a moment")
        assert not watch.is_over()
    wait_for(watch.is_over, "that the asker is missed", 10)


@pytest.mark.parametrize(
    ("environ", "rank"),
    [
        ({"SLURM_PROCID": "3"}, 3),
        ({"PMI_RANK": "2", "SLURM_PROCID": "0"}, 2),  # mpiexec in a job of Slurm
        ({"OMPI_COMM_WORLD_RANK": "1", "RANK": "7"}, 1),
    ],
)
def test_each_launcher_numbers_its_ranks(environ, rank):
    assert number_of_this_rank(environ) == rank


def test_a_task_can_be_sent():
    task = Task(b"x", 1, ({"A": None},), ("a:1",), float("inf"))
    assert pickle.loads(pickle.dumps(task)) == task
