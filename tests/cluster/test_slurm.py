"""engine="slurm" on a real Slurm of two nodes, which are this machine."""

import json
import os
import socket
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path

import psutil
import pytest

import labkit
from labkit import LabError, cli, cluster
from labkit.cluster import slurm_queue, tf_config
from tests.cluster.private_slurm import wait_for

ROOT = Path(labkit.__file__).parent.parent


def who(rank):
    me = cluster.this_rank()
    print(f"{me.role} {me.index} on {os.environ['SLURMD_NODENAME']}", flush=True)
    names = ("SLURM_PROCID", "SLURM_STEP_ID", "LOCAL_RANK", "OMP_NUM_THREADS", "MASTER_ADDR")
    return (
        me.addresses[rank],
        json.loads(os.environ["TF_CONFIG"]),
        *(os.environ.get(n) for n in names),
    )


def waits(rank):
    print("pid", os.getpid(), flush=True)
    while True:
        time.sleep(1)


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
        assert (config.rank, config.addresses[rank]) == (rank, one[0])
        assert f"rank {rank}: worker {rank} on {hosts[rank]}" in lines
    assert slurm.jobs() == []
    assert list(tmp_path.iterdir()) == []


def test_runs_of_one_block(block, slurm):
    """A port that another program has; modules before the program; last words; a slow start; what
    ranks have started; a job that is cancelled."""

    def loads(rank):
        import numpy as np  # noqa: F401

        sys.stdout.write("begun")
        sys.stderr.write("no end of a line")
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        return sys.stdin.read(), child.pid

    def is_loaded(rank):
        return "numpy" in sys.modules, "wave" in sys.modules, bool(loads)

    class Slow:
        def __reduce__(self):
            return time.sleep, (60,)

    with labkit.cluster(ranks=2, start=4, preload=["wave"], **block) as c:
        with socket.socket() as taken:
            taken.bind(("", tf_config.step_ports(int(c.engine.job), 0)[0]))
            taken.listen()
            with pytest.raises(LabError, match=r"Port \d+ of 127.0.0.2 is taken"):
                c.run(abs)
        found = c.run(loads, show=False)
        for rank, (text, pid) in enumerate(found):
            assert text == ""
            assert {*c.output(rank).split("\n")} >= {"begun", "no end of a line"}
            wait_for(lambda pid=pid: not psutil.pid_exists(pid), "the end of what a rank started")
        assert c.run(is_loaded) == [(True, True, True)] * 2
        with pytest.raises(LabError, match=r"have not started in 4 s"):
            c.run(lambda rank, _slow: rank, Slow())
        run = c.start(waits, show=False)
        run.wait_for("pid", rank=0)
        slurm.ask("scancel", c.engine.job)
        with pytest.raises(LabError, match=r"it was cancelled \(scancel\)"):
            run.finish(20).raise_errors()
        with pytest.raises(LabError, match=r"has ended.*Open a new cluster block"):
            c.run(who)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"partition": "betta"}, "refuses.*partition=betta.*alpha.*lab"),
        ({"time": "2:00:00"}, "would wait for ever"),
        ({"time": "soon"}, "Slurm refuses the job.*time=soon"),
        ({"memory": "900G"}, "Slurm refuses the job.*mem=900G"),
    ],
)
def test_what_the_cluster_does_not_have_is_a_sentence(slurm, block, keywords, message):
    with pytest.raises(LabError, match=message), labkit.cluster(ranks=2, **{**block, **keywords}):
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
    assert "runs on" in seen.queue[-1][1]
    assert sorted(line.rank for line in seen.lines) == [0, 1]
    assert "worker 1 on 127.0.0.3" in repr(seen)
    assert "def who(rank):" in repr(seen)
    assert str(block["folder"]) not in repr(seen)
