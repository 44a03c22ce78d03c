"""engine="slurm" on a real Slurm of two nodes, which are this machine."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from itertools import accumulate, islice, repeat
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
    names = ("SLURM_PROCID", "SLURM_STEP_ID", "LOCAL_RANK", "OMP_NUM_THREADS", "MASTER_ADDR")
    return me.address, json.loads(os.environ["TF_CONFIG"]), *(os.environ.get(n) for n in names)


def waits(rank):
    print("pid", os.getpid(), flush=True)
    while True:
        psutil.time.sleep(1)


@pytest.fixture
def block(slurm, tmp_path):
    """The keywords of a block on both nodes, whose folder is the test's own."""
    return {"engine": "slurm", "nodes": 2, "partition": "lab", "time": 5, "folder": tmp_path}


def test_one_job_holds_the_nodes_and_each_run_is_one_step(slurm, block, capsys, tmp_path):
    with labkit.cluster(ranks=4, cpus=1, **block) as c:
        shown = capsys.readouterr().out
        found = c.run(who)
        assert slurm.jobs() == ["labkit RUNNING"]
        lines = capsys.readouterr().out.splitlines()
        steps = {int(one[3]) for one in found}
        assert {int(one[3]) for one in c.run(who, show=False)} == {max(steps) + 1}
    assert shown.startswith("#!/bin/bash\n#SBATCH --job-name=labkit\n#SBATCH --ntasks=4\n")
    assert "runs on 127.0.0.[2-3]." in shown
    hosts = ["127.0.0.2", "127.0.0.2", "127.0.0.3", "127.0.0.3"]
    assert [one[0].partition(":")[0] for one in found] == hosts
    assert [one[2:] for one in found] == [
        (str(rank), str(max(steps)), str(rank % 2), "1", "127.0.0.2") for rank in range(4)
    ]
    for rank, one in enumerate(found):
        config = tf_config.check(one[1])
        assert (config.rank, config.address) == (rank, one[0])
        assert f"rank {rank}: worker {rank} on {hosts[rank]}" in lines
    assert slurm.jobs() == []
    assert list(tmp_path.iterdir()) == []


def test_what_a_program_needs_is_loaded_before_it_begins(block):
    def needs_numpy(rank):
        import numpy as np

        return np.zeros(rank)

    def loaded(rank):
        return "numpy" in sys.modules, bool(needs_numpy)

    with labkit.cluster(ranks=1, **{**block, "nodes": 1}, preload=["ast", "wave"]) as c:
        assert c.run(loaded) == [(True, True)]
        assert c.run(lambda rank: "wave" in sys.modules) == [True]


def test_ranks_that_do_not_start_in_time_are_named_with_the_users_start(block, tmp_path):
    class Slow:
        def __reduce__(self):
            return psutil.time.sleep, (60,)

    with (
        labkit.cluster(ranks=2, start=4, **block) as c,
        pytest.raises(LabError, match=r"have not started in 4 s"),
    ):
        c.run(lambda rank, _slow: rank, Slow())


def test_a_port_that_another_program_has_is_named_and_the_next_run_has_others(block):
    with labkit.cluster(ranks=1, **{**block, "nodes": 1}) as c, socket.socket() as taken:
        port = int(c.addresses[0].rpartition(":")[2])
        taken.bind(("", port))
        taken.listen()
        with pytest.raises(LabError, match=rf"Port {port} of .* is taken"):
            c.run(abs)
        assert c.run(abs) == [0]


def test_what_a_rank_writes_last_is_not_lost(block):
    def writes(rank):
        sys.stdout.write("begun")
        sys.stderr.write("no end of a line")
        return sys.stdin.read()

    with labkit.cluster(ranks=2, **block) as c:
        assert c.run(writes, show=False) == ["", ""]
        for rank in range(2):
            assert {*c.output(rank).split("\n")} >= {"begun", "no end of a line"}


def test_a_job_that_is_cancelled_from_outside_says_so(slurm, block):
    with labkit.cluster(ranks=2, **block) as c:
        run = c.start(waits, show=False)
        run.wait_for("pid", rank=0)
        slurm.ask("scancel", c.engine.job)
        with pytest.raises(LabError, match=r"it was cancelled \(scancel\)"):
            run.finish(20).raise_errors()
        with pytest.raises(LabError, match=r"has ended.*Open a new cluster block"):
            c.run(who)


@pytest.mark.parametrize(
    ("keywords", "says"),
    [
        ({"partition": "betta"}, "refuses.*partition=betta.*alpha.*lab"),
        ({"time": "2:00:00"}, "would wait for ever"),
        ({"memory": "900G"}, "Slurm refuses the job.*mem=900G"),
        ({"extra": ["--nodelist=nowhere"]}, "Slurm refuses the job"),
    ],
)
def test_what_the_cluster_does_not_have_is_a_sentence(slurm, block, keywords, says):
    with pytest.raises(LabError, match=says), labkit.cluster(ranks=2, **{**block, **keywords}):
        pass
    assert slurm.jobs() == []


def test_a_job_that_waits_too_long_is_cancelled_with_slurms_reason(slurm, block):
    with (
        labkit.cluster(ranks=2, **block, extra=["--exclusive"]),
        pytest.raises(LabError, match=r"still waited after .*nodes that it needs are busy"),
        labkit.cluster(ranks=1, **{**block, "nodes": 1, "wait": 1.0}),
    ):
        pass
    assert slurm.jobs() == []


def test_a_killed_notebook_leaves_no_job_no_rank_and_no_folder(slurm, tmp_path):
    program = (
        "import labkit\n"
        "from tests.cluster.test_slurm import waits\n"
        f"with labkit.cluster(ranks=2, engine='slurm', time=5, folder={str(tmp_path)!r}) as c:\n"
        "    c.run(waits)\n"
    )
    client = subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    lines = (line.split() for line in client.stdout if ": pid" in line)
    ranks = [int(words[-1]) for words in islice(lines, 2)]
    assert slurm.jobs() == ["labkit RUNNING"]
    client.kill()
    client.wait()
    client.stdout.close()
    wait_for(lambda: slurm.jobs() == [], "the end of the job")
    wait_for(lambda: not any(psutil.pid_exists(pid) for pid in ranks), "the end of the ranks")
    wait_for(lambda: not any(tmp_path.iterdir()), "the end of the folder")


def test_what_a_rank_has_started_ends_with_its_run(block):
    def starts(rank):
        import subprocess

        return subprocess.Popen(["sleep", "600"], start_new_session=True).pid

    with labkit.cluster(ranks=1, **{**block, "nodes": 1}) as c:
        [pid] = c.run(starts)
        wait_for(lambda: not psutil.pid_exists(pid), "the end of what the rank has started")


def test_the_script_of_a_file_runs_it_on_every_rank(slurm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(
        "import json, os\n"
        "def train(rank):\n"
        "    task = json.loads(os.environ['TF_CONFIG'])['task']\n"
        "    print('I am', rank, task['type'], task['index'], os.environ['SLURMD_NODENAME'])\n"
        "    return os.environ['WORLD_SIZE']\n"
    )
    options = ["--ranks=4", "--nodes=2", "--partition=alpha", "--time=5", "--program=train"]
    assert cli.main(["slurm", "script", "train.py", *options, "-o", "job.sh"]) == 0
    job = slurm_queue.submit((tmp_path / "job.sh").read_text())
    wait_for(lambda: slurm_queue.state_of(job).state == "COMPLETED", "the end of the job")
    log = (tmp_path / f"train-{job}.log").read_text().splitlines()
    for rank, node in enumerate(["127.0.0.2"] * 2 + ["127.0.0.3"] * 2):
        assert f"{rank}: I am {rank} worker {rank} {node}" in log
        assert f"{rank}: returned '4'" in log


def test_a_session_is_what_happened(block):
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
    found = slurm_queue.slurm_environment()
    assert "SLURM_NTASKS" not in found
    assert found["SLURM_CONF"] == "/etc/mine"


def test_the_queue_is_asked_more_seldom_than_sbatch_wait_does():
    hour = 3600.0
    times = accumulate(repeat(None), lambda now, _: now + slurm_queue.pause_after(now), initial=0.0)
    ours = sum(1 for _ in iter(lambda: next(times) < hour, False))
    sbatch = len([*range(2 + 8, int(hour), 32)]) + 2  # after 2 s, 8 s, then every 32 s
    assert ours < sbatch
