"""engine="slurm" on a real Slurm of two nodes, which are this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path

import psutil
import pytest

import labkit
from labkit import LabError, cli, cluster
from labkit.cluster import session, slurm_queue, tf_config
from tests.cluster.private_slurm import wait_for

ROOT = Path(labkit.__file__).parent.parent


def who(rank):
    me = cluster.this_rank()
    print(f"{me.role} {me.index} on {os.environ['SLURMD_NODENAME']}", flush=True)
    return {
        "address": me.address,
        "task": os.environ["SLURM_PROCID"],
        "config": json.loads(os.environ["TF_CONFIG"]),
        "local": os.environ["LOCAL_RANK"],
        "master": os.environ["MASTER_ADDR"],
    }


def dies_on_one(rank):
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)


def waits(rank):
    print("waiting", flush=True)
    time.sleep(600)


@pytest.fixture
def block(slurm, tmp_path):
    """The keywords of a block on both nodes, whose folder is the test's own."""
    return {"engine": "slurm", "nodes": 2, "partition": "lab", "time": 5, "folder": tmp_path}


def test_the_ranks_of_a_job_are_on_its_nodes_and_know_each_other(slurm, block, capsys, tmp_path):
    with labkit.cluster(ranks=4, **block) as c:
        shown = capsys.readouterr().out
        found = c.run(who)
        assert slurm.jobs() == ["labkit RUNNING"]
        lines = capsys.readouterr().out.splitlines()
        # The same job serves the next run, also after one that failed.
        with pytest.raises(LabError, match=r"Rank 1 was killed by signal 9") as caught:
            c.run(dies_on_one)
        assert "of dies_on_one" in caught.value.errors[0].text
        assert [one["task"] for one in c.run(who, show=False)] == ["0", "1", "2", "3"]
    assert shown.startswith("#!/bin/bash\n#SBATCH --job-name=labkit\n#SBATCH --ntasks=4\n")
    assert "#SBATCH --partition=lab" in shown
    assert "runs on 127.0.0.[2-3]." in shown
    hosts = [one["address"].partition(":")[0] for one in found]
    assert hosts == ["127.0.0.2", "127.0.0.2", "127.0.0.3", "127.0.0.3"]
    assert [one["local"] for one in found] == ["0", "1", "0", "1"]
    assert {one["master"] for one in found} == {"127.0.0.2"}
    for rank, one in enumerate(found):
        config = tf_config.check(one["config"])
        assert (config.rank, config.address) == (rank, one["address"])
        assert f"rank {rank}: worker {rank} on {hosts[rank]}" in lines
    assert slurm.jobs() == []
    assert list(tmp_path.iterdir()) == []


def test_a_job_that_is_cancelled_from_outside_says_so(slurm, block):
    with labkit.cluster(ranks=2, **block) as c:
        going = c.start(waits, show=False)
        going.wait_for("waiting", rank=0)
        slurm.ask("scancel", c.engine.job)
        with pytest.raises(LabError, match=r"it was cancelled \(scancel\)"):
            going.finish(20).raise_errors()
        with pytest.raises(LabError, match=r"has ended.*Open a new cluster block"):
            c.run(who)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"partition": "betta"}, "no partition 'betta'. There are: alpha, lab"),
        ({"time": "2:00:00"}, "would wait for ever: the partition allows no such job"),
        ({"memory": "900G"}, "Slurm refuses the job.*mem=900G"),
        ({"extra": ["--nodelist=nowhere"]}, "Slurm refuses the job"),
    ],
)
def test_what_the_cluster_does_not_have_is_a_sentence(slurm, block, asked, said):
    with pytest.raises(LabError, match=said), labkit.cluster(ranks=2, **{**block, **asked}):
        pass
    assert slurm.jobs() == []


def test_a_job_that_waits_too_long_is_given_up_with_slurms_reason(slurm, block, capsys):
    with labkit.cluster(ranks=2, **block, extra=["--exclusive"]):
        asked = {**block, "nodes": 1, "wait": 1.5}
        with (
            pytest.raises(LabError, match=r"still waited after 1.50 s.*nodes that it needs are b"),
            labkit.cluster(ranks=1, **asked),
        ):
            pass
        assert slurm.jobs() == ["labkit RUNNING"]


def test_a_killed_notebook_leaves_no_job(slurm, tmp_path):
    program = (
        "import labkit, os, time\n"
        "def waits(rank):\n"
        "    print('pid', os.getpid(), flush=True)\n"
        "    time.sleep(600)\n"
        f"with labkit.cluster(ranks=2, engine='slurm', time=5, folder={str(tmp_path)!r}) as c:\n"
        "    c.run(waits)\n"
    )
    asker = subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    said = (line.split() for line in asker.stdout if "pid" in line)
    ranks = [int(words[-1]) for words in islice(said, 2)]
    assert slurm.jobs() == ["labkit RUNNING"]
    asker.kill()
    asker.wait()
    asker.stdout.close()
    wait_for(lambda: slurm.jobs() == [], "the end of the job")
    wait_for(lambda: not any(psutil.pid_exists(pid) for pid in ranks), "the end of the ranks")


def test_the_script_of_a_notebooks_program_runs_it_on_every_rank(slurm, tmp_path, monkeypatch):
    cells = [
        "import json, os",
        "raise SystemExit('a job must not run all of the notebook')",
        "def train(rank):\n"
        "    task = json.loads(os.environ['TF_CONFIG'])['task']\n"
        "    print('I am', rank, task['type'], task['index'], os.environ['SLURMD_NODENAME'])\n"
        "    return os.environ['WORLD_SIZE']",
    ]
    notebook = {"cells": [{"cell_type": "code", "source": [cell]} for cell in cells]}
    (tmp_path / "a.ipynb").write_text(json.dumps(notebook))
    monkeypatch.chdir(tmp_path)
    asked = ["--ranks=4", "--nodes=2", "--partition=alpha", "--time=5", "--program=train"]
    assert cli.main(["slurm", "script", "a.ipynb", *asked, "-o", "job.sh"]) == 0
    job = slurm_queue.submit((tmp_path / "job.sh").read_text())
    wait_for(lambda: slurm_queue.state_of(job).state == "COMPLETED", "the end of the job")
    log = (tmp_path / f"train-{job}.log").read_text().splitlines()
    nodes = ["127.0.0.2"] * 2 + ["127.0.0.3"] * 2
    for rank, node in enumerate(nodes):
        assert f"{rank}: I am {rank} worker {rank} {node}" in log
        assert f"{rank}: returned '4'" in log


def test_a_session_is_what_happened(slurm, block, capsys):
    del block["engine"]
    seen = cluster.slurm_session(who, ranks=2, **block)
    assert seen.kind.name == "measured"
    assert seen.script.startswith("#!/bin/bash")
    assert [moment.state for moment in seen.moments][-1] == "RUNNING"
    assert sorted(line.rank for line in seen.lines) == [0, 1]
    assert "worker 1 on 127.0.0.3" in repr(seen)
    assert "def who(rank):" in repr(seen)
    kept = session.as_recording(seen, "a test's Slurm")
    assert str(kept.kind) == f"recorded on a test's Slurm, {seen.when}"
    assert str(block["folder"]) not in repr(kept)


def test_the_environment_of_an_outer_job_is_not_passed_on(monkeypatch):
    monkeypatch.setenv("SLURM_NTASKS", "99")
    monkeypatch.setenv("SLURM_CONF", "/etc/mine")
    told = slurm_queue.slurm_environment()
    assert "SLURM_NTASKS" not in told
    assert told["SLURM_CONF"] == "/etc/mine"
