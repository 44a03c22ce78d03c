"""What a job asks of Slurm; scripts of `labkit slurm script`; what is shown without Slurm."""

import inspect
import re
import subprocess

import pytest

from labkit import LabError, cli, cluster
from labkit.cluster import Cluster, session
from labkit.cluster.slurm import queue
from labkit.cluster.slurm.queue import QueueState
from tests.cluster.record_session import lecture_cell

TRAIN = "import os\n\ndef train(rank):\n    print(rank)\n"


@pytest.fixture
def train(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(TRAIN)
    return path


@pytest.fixture
def no_slurm(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))


def test_a_script_starts_the_function_on_every_rank(train):
    script = cluster.batch_script(
        train, ranks=8, nodes=4, partition="alpha", time="1:00:00", account="p_lab", memory="64000",
        cpus=4, gpus=1, extra=("--reservation=class",),
    )  # fmt: skip
    lines = script.text.splitlines()
    given = [line.removeprefix("#SBATCH --") for line in lines if line.startswith("#SBATCH")]
    assert given == [
        "job-name=train", "ntasks=8", "nodes=4", "ntasks-per-node=2", "cpus-per-task=4",
        "gres=gpu:1", "mem=64000", "partition=alpha", "account=p_lab", "time=1:00:00",
        "reservation=class", "output=train-%j.log",
    ]  # fmt: skip
    assert "srun --kill-on-bad-exit=1 --label --cpus-per-task=4 \\" in lines
    assert lines[-1].endswith(f"labkit.cli slurm run {train}:train")
    assert subprocess.run(["bash", "-n"], input=script.text, text=True).returncode == 0
    assert "per-node" not in cluster.batch_script(train, ranks=3, nodes=2).text
    with pytest.raises(LabError, match="account must be one line"):
        cluster.batch_script(train, account="p_lab\n#SBATCH --nodes=9")


def test_a_script_never_overwrites_what_was_edited(train, tmp_path, capsys):
    job = tmp_path / "job.sh"
    command = ["slurm", "script", str(train), "--program", "train", "--ranks", "4", "-o", str(job)]
    assert cli.main(command) == 0
    assert f"sbatch {job}" in capsys.readouterr().out
    assert job.stat().st_mode & 0o100
    assert cli.main(command) == 0  # the same again is no mistake
    edited = job.read_text() + "# mine\n"
    job.write_text(edited)
    assert cli.main(command) == 2
    assert "is there already" in capsys.readouterr().err
    assert job.read_text() == edited
    assert train.read_text() == TRAIN


@pytest.mark.parametrize(
    ("name", "text", "options", "message"),
    [
        ("a.py", "def f(rank): pass\ndef g(rank): pass\n", [], "'f', 'g', got None"),
        ("a.ipynb", "{}", ["--program", "f"], "%%writefile"),
    ],
)
def test_a_mistake_on_the_command_line_is_a_sentence(
    tmp_path, capsys, name, text, options, message
):
    (tmp_path / name).write_text(text)
    assert cli.main(["slurm", "script", str(tmp_path / name), *options]) == 2
    assert re.search(message, capsys.readouterr().err)


def test_scripts_and_sessions_take_the_requests_of_a_cluster_by_name():
    names = ("ranks", *list(inspect.signature(Cluster).parameters)[-12:-2])
    assert names[1] == "nodes"
    for function in (cluster.batch_script, cluster.slurm_session):
        assert {*names} <= {*inspect.signature(function).parameters}


def test_without_slurm_the_recording_is_shown_and_says_so(no_slurm):
    seen = cluster.slurm_session(lambda rank: rank, ranks=2)
    assert seen.kind.name == "recorded"
    assert str(seen.kind) in repr(seen)
    with pytest.raises(LabError, match='engine="local"'), cluster(ranks=2, engine="slurm"):
        pass


def test_the_recording_is_of_the_lectures_program_and_names_no_folder():
    kept = session.recorded_session()
    assert kept.program.strip() in lecture_cell(), "python -m tests.cluster.record_session"
    assert {line.rank for line in kept.lines} == set(range(len(kept.results)))
    text = session.RECORDING.read_text(encoding="utf-8")
    assert not re.search("/(home|Users|root|tmp|work)/", text)


def test_only_a_job_that_never_starts_is_hopeless(monkeypatch):
    for reason in ("Resources", "PartitionTimeLimit", "NewReason"):
        state = QueueState("1", "PENDING", reason)
        assert bool(state.hopeless) == (reason == "PartitionTimeLimit")
    assert "NewReason" in str(state)
    monkeypatch.setattr(queue, "run_slurm", lambda *_: "PENDING|Priority||N/A")
    assert "begin" not in str(queue.state_of("1"))


def test_the_environment_of_an_outer_job_is_not_passed_on(monkeypatch):
    monkeypatch.setenv("SLURM_NTASKS", "99")
    monkeypatch.setenv("SLURM_CONF", "/etc/mine")
    found = queue.slurm_environment()
    assert "SLURM_NTASKS" not in found
    assert found["SLURM_CONF"] == "/etc/mine"
