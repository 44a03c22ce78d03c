"""engine="slurm" on a real Slurm of two nodes, which are this machine."""

import ast
import os
import re
import socket
import subprocess
import sys
from itertools import islice
from pathlib import Path

import psutil
import pytest

import labkit
from labkit import LabError, cli, cluster
from labkit.cluster import tf_config
from labkit.cluster.slurm import queue
from tests.cluster.private_slurm import wait_for
from tests.cluster.programs import says_its_pid_and_waits, who
from tests.cluster.record_session import requeued

ROOT = Path(labkit.__file__).parent.parent


@pytest.fixture
def block(slurm, tmp_path):
    """The keywords of a block on both nodes, whose folder is the test's own."""
    return {"nodes": 2, "partition": "lab", "time": 5, "folder": tmp_path}


def test_a_session_is_what_happened_on_the_nodes(slurm, block, tmp_path):
    seen = cluster.slurm_session(who, ranks=4, cpus=1, **block)
    assert seen.kind.name == "measured"
    script = "#!/bin/bash\n#SBATCH --job-name=labkit\n#SBATCH --ntasks=4\n"
    assert seen.script.startswith(script)
    assert "runs on 127.0.0.[2-3]." in seen.queue[-1][1]
    hosts = ["127.0.0.2", "127.0.0.2", "127.0.0.3", "127.0.0.3"]
    for rank, (host, result) in enumerate(zip(hosts, seen.results, strict=True)):
        address, config, *variables = ast.literal_eval(result)
        assert address.partition(":")[0] == host
        assert tf_config.check(config).addresses[rank] == address
        assert variables == [str(rank), str(rank % 2), "1", "127.0.0.2"]
        assert f"rank {rank}: worker {rank} on {host}" in repr(seen)
    assert "def who(rank):" in repr(seen)
    assert str(tmp_path) not in repr(seen)
    assert list(tmp_path.iterdir()) == []


def test_runs_of_one_block(block, slurm):
    """A port that another program has; modules before the program; last words; what ranks have
    started; a job that is cancelled."""

    def loads(rank):
        before = "numpy" in sys.modules
        import numpy as np  # noqa: F401

        sys.stdout.write("begun")
        sys.stderr.write("no end of a line")
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        return before, sys.stdin.read(), child.pid

    with labkit.cluster(ranks=2, engine="slurm", **block) as c:
        assert slurm.jobs() == ["labkit RUNNING"]
        with socket.socket() as taken:
            taken.bind(("", tf_config.step_ports(int(c.engine.job), 0)[0]))
            taken.listen()
            with pytest.raises(LabError, match=r"Port \d+ of 127.0.0.2 is taken"):
                c.run(abs)
        for rank, (loaded, text, pid) in enumerate(c.run(loads, show=False)):
            assert (loaded, text) == (True, "")
            assert {*c.output(rank).split("\n")} >= {"begun", "no end of a line"}
            wait_for(lambda pid=pid: not psutil.pid_exists(pid), "the end of what a rank started")
        run = c.start(says_its_pid_and_waits, show=False)
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
        ({"time": "2:00:00"}, "never starts"),
        ({"extra": ["--begin=now+1hour"], "wait": 0.1}, r"still waited after .*BeginTime"),
    ],
)
def test_a_job_that_gets_no_nodes_is_cancelled_with_a_sentence(slurm, block, keywords, message):
    ranks = labkit.cluster(ranks=2, engine="slurm", **{**block, **keywords})
    with pytest.raises(LabError, match=message), ranks:
        pass
    assert slurm.jobs() == []


def test_a_killed_notebook_leaves_no_job_no_rank_and_no_folder(slurm, tmp_path):
    program = (
        "import labkit\n"
        "from tests.cluster.programs import says_its_pid_and_waits\n"
        f"with labkit.cluster(ranks=2, engine='slurm', time=5, folder={str(tmp_path)!r}) as c:\n"
        "    c.run(says_its_pid_and_waits)\n"
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
    job = queue.submit((tmp_path / "job.sh").read_text())
    wait_for(lambda: queue.state_of(job).state == "COMPLETED", "the end of the job")
    log = (tmp_path / f"train-{job}.log").read_text().splitlines()
    for rank, node in enumerate(["127.0.0.2"] * 2 + ["127.0.0.3"] * 2):
        assert f"{rank}: I am {rank} worker {rank} {node}" in log
        assert f"{rank}: returned '4'" in log


def test_a_file_and_its_arguments_may_have_a_space_in_their_names(slurm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    program = "import os, sys; print('rank', os.environ['RANK'], sys.argv[1:])"
    Path("my train.py").write_text(program)
    script = cluster.batch_script("my train.py", environment="torch", time=5).save()
    job = slurm.ask("sbatch", "--parsable", str(script), "a b").strip()
    wait_for(lambda: queue.state_of(job).state == "COMPLETED", "the end of the job")
    log = Path(f"my train-{job}.log").read_text()
    assert all(f"{rank}: rank {rank} ['a b']" in log for rank in range(2))


@pytest.mark.stress  # TensorFlow starts four times; without Slurm the take-home program is tested
def test_a_plain_program_stops_at_sigterm_and_goes_on_when_requeued(slurm, tmp_path):
    log = requeued(slurm, tmp_path, steps=300)
    begins = re.findall(r"begins after step (\d+)", log)
    ends = re.findall(r"ends after step (\d+)", log)
    assert begins == ["0", "0", *ends[:2]]
    assert ends[0] == ends[1] != "300"
    assert ends[2:] == ["300", "300"]
