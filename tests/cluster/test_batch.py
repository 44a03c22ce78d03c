"""What a job asks of Slurm, and the scripts of `labkit slurm script`."""

from __future__ import annotations

import re
import subprocess

import pytest

from labkit import cli, cluster
from labkit.cluster.batch import Resources
from labkit.kinds import LabError

TRAIN = "import os\n\ndef train(rank):\n    print(rank)\n"


@pytest.fixture
def train(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(TRAIN)
    return path


def test_resources_are_what_sbatch_reads():
    resources = Resources(
        8, nodes=4, partition="alpha", time="1:00:00", account="p_lab", memory="64000", cpus=6,
        gpus=1, extra=("--reservation=class",), name="train",
    )  # fmt: skip
    assert resources.header("train-%j.log").splitlines() == [
        "#!/bin/bash",
        "#SBATCH --job-name=train",
        "#SBATCH --ntasks=8",
        "#SBATCH --nodes=4",
        "#SBATCH --ntasks-per-node=2",
        "#SBATCH --cpus-per-task=6",
        "#SBATCH --gres=gpu:1",
        "#SBATCH --mem=64000",
        "#SBATCH --partition=alpha",
        "#SBATCH --account=p_lab",
        "#SBATCH --time=1:00:00",
        "#SBATCH --reservation=class",
        "#SBATCH --output=train-%j.log",
    ]
    assert "--ntasks-per-node" not in Resources(3, nodes=2).header()


@pytest.mark.parametrize(
    ("keywords", "says"),
    [
        ({"ranks": 0}, "ranks"),
        ({"ranks": 2, "nodes": 3}, "nodes"),
        ({"ranks": 2, "gpus": True}, "gpus"),
        ({"ranks": 2, "time": "one hour"}, "time='one hour'"),
        ({"ranks": 2, "memory": "64 GB"}, "memory='64 GB'"),
        ({"ranks": 2, "partition": "a\n#SBATCH --wrap=x"}, "partition="),
        ({"ranks": 2, "extra": "--exclusive"}, "extra"),
        ({"ranks": 2, "extra": ("exclusive",)}, "'exclusive'"),
    ],
)
def test_what_slurm_would_not_take_is_refused_before_it_is_sent(keywords, says):
    with pytest.raises(LabError, match=says):
        Resources(**keywords)


def test_a_script_starts_the_function_on_every_rank(train):
    script = cluster.batch_script(train, ranks=2, cpus=4)
    lines = script.text.splitlines()
    assert "#SBATCH --job-name=train" in lines
    assert "srun --kill-on-bad-exit=1 --label --cpus-per-task=4 \\" in lines
    assert lines[-1].endswith(f"labkit.cli slurm run {train}:train")
    assert subprocess.run(["bash", "-n"], input=script.text, text=True).returncode == 0


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
    with pytest.raises(LabError, match="cannot be written"):
        cluster.batch_script(train).save(tmp_path / "nowhere" / "job.sh")


@pytest.mark.parametrize(
    ("name", "text", "options", "says"),
    [
        ("a.py", "def f(rank): pass\ndef g(rank): pass\n", [], r"\(f, g\)"),
        ("a.py", "def f(rank): pass\n", ["--program", "g"], r"\(f\), got 'g'"),
        ("a.py", "x = 1", [], "it has none"),
        ("a.py", "def f(", [], "cannot be read"),
        ("a.ipynb", "{}", ["--program", "f"], "%%writefile"),
        ("a.py", "def f(rank): pass\n", ["--time", "soon"], "time='soon'"),
    ],
)
def test_a_mistake_on_the_command_line_is_a_sentence(tmp_path, capsys, name, text, options, says):
    (tmp_path / name).write_text(text)
    assert cli.main(["slurm", "script", str(tmp_path / name), *options]) == 2
    assert re.search(says, capsys.readouterr().err)


def test_a_function_of_a_notebook_must_be_written_to_a_file():
    with pytest.raises(LabError, match="%%writefile"):
        cluster.batch_script(lambda rank: rank)


def test_a_rank_that_srun_did_not_start_says_so(train, capsys, monkeypatch):
    for name in ("SLURM_PROCID", "SLURM_JOB_NODELIST", "SLURM_STEP_NODELIST"):
        monkeypatch.delenv(name, raising=False)
    assert cli.main(["slurm", "run", f"{train}:train"]) == 2
    assert "srun" in capsys.readouterr().err
