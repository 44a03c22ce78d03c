"""What a computing centre asks of jobs: `labkit-centre.toml`, in scripts and on a real Slurm."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import pytest

import labkit
from labkit import LabError, cli, cluster
from labkit.centre import Centre, centre
from labkit.datasets import cache_folder
from labkit.doctor import check_job

CENTRE = """
account = "p_course"
partition = "alpha"
reservation = "summer"
gpus = "--gpus-per-node=a100:{gpus}"
options = ["--hint=nomultithread"]
prologue = ["module load CUDA"]
scratch = "$SCRATCH/runs"
data = "/data/course"
[variables]
NCCL_SOCKET_IFNAME = "ib0"
NAMES = "a b"
"""
# It says how it was called, and runs what stands behind the image.
APPTAINER = """#!/bin/bash
echo "apptainer $1 $2 $3" >&2
shift 3
export INSIDE=course.sif
exec "$@"
"""


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Write the file of this centre."""

    def write(text):
        (tmp_path / "labkit-centre.toml").write_text(text)
        monkeypatch.setenv("LABKIT_CENTRE", str(tmp_path / "labkit-centre.toml"))

    return write


@pytest.fixture
def train(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("def train(rank):\n    print(rank)\n")
    return path


def test_the_file_is_found_above_the_folder_of_the_notebook(tmp_path, monkeypatch):
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path / "notebooks")
    assert centre() == Centre()
    (tmp_path / "labkit-centre.toml").write_text('partition = "alpha"')
    assert centre().partition == "alpha"
    if os.geteuid() == 0:
        os.chown(tmp_path / "labkit-centre.toml", 12345, -1)
        assert centre() == Centre()  # a stranger's, whose lines would run in a shell


def test_a_script_asks_for_what_the_centre_asks_for(written, train, monkeypatch, capsys):
    monkeypatch.setenv("SCRATCH", "/scratch/me")
    written(CENTRE)
    text = cluster.batch_script(train, ranks=2, gpus=1, partition="beta").text
    asked = [line.removeprefix("#SBATCH --") for line in text.splitlines() if "#SBATCH" in line]
    assert {"account=p_course", "partition=beta", "reservation=summer"} <= set(asked)
    assert {"gpus-per-node=a100:1", "hint=nomultithread"} <= set(asked)
    before_the_program = text[: text.index("srun")]
    assert "\nmodule load CUDA\nexport NCCL_SOCKET_IFNAME=ib0\nexport NAMES='a b'\n" in text
    assert "module load" in before_the_program
    assert (centre().scratch, str(cache_folder())) == ("/scratch/me/runs", "/data/course")
    assert cli.main(["slurm", "script", str(train)]) == 0
    assert "--account=p_course" in capsys.readouterr().out


def test_a_script_for_another_framework_runs_in_the_container(written, train):
    written('container = "apptainer exec --nv /data/course.sif"')
    text = cluster.batch_script(train, ranks=2, environment="torch").text
    assert f"\n  apptainer exec --nv /data/course.sif python3 {train}" in text
    port = re.search(r"MASTER_PORT=\$\(\((.*)\)\)", text)[1].replace("SLURM_JOB_ID", "19999")
    assert eval(port) < 32_768  # where outgoing connections get theirs
    assert "activate" not in text  # the container has its own packages
    assert subprocess.run(["bash", "-n"], input=text, text=True).returncode == 0


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('partitions = "a"', "partitions"),
        ("account = 3", "account"),
        ("account = ", "centre.toml"),
    ],
)
def test_a_mistake_in_the_file_is_named(written, text, named):
    written(text)
    with pytest.raises(LabError, match=named):
        centre()


def test_a_line_of_the_prologue_that_fails_ends_the_program(written):
    written('prologue = ["true", "module-is-missing load x", "echo after"]')
    command = centre().in_shell([sys.executable, "-c", "print('program')"])
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "has failed: module-is-missing load x" in done.stderr


def test_ranks_of_slurm_run_behind_prologue_and_container(slurm, written, tmp_path, monkeypatch):
    (tmp_path / "apptainer").write_text(APPTAINER)
    (tmp_path / "apptainer").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    python = shutil.which("python3") if sys.prefix == sys.base_prefix else sys.executable
    written(
        'partition = "alpha"\nprologue = ["export LOADED=cuda"]\n'
        f'container = "apptainer exec --nv course.sif"\ncontainer_python = "{python}"\n'
        f'scratch = "{tmp_path}"\n[variables]\nNCCL_SOCKET_IFNAME = "ib0"\n'
    )

    def found(rank):
        return [os.environ.get(name) for name in ("LOADED", "INSIDE", "NCCL_SOCKET_IFNAME")]

    with labkit.cluster(ranks=2, engine="slurm", time="5") as c:
        assert c.run(found, timeout=120) == [["cuda", "course.sif", "ib0"]] * 2
        assert (tmp_path / ".labkit" / "runs").is_dir()
        assert "--partition=alpha" in c.engine.script


def test_doctor_tries_a_job_and_says_what_is_wrong(slurm, written, tmp_path):
    written(f'data = "{tmp_path}/nowhere"\nscratch = "{tmp_path}"')
    job = check_job()
    assert job.status == "fail"
    assert f"no folder {tmp_path}/nowhere" in job.do
    written(f'data = "{tmp_path}"\nscratch = "{tmp_path}"')
    assert check_job().status == "pass"
    written(f'scratch = "{tmp_path}"\nprologue = ["module-is-missing load x"]')
    assert "this line has failed: module-is-missing load x" in check_job().do
    written('partition = "no-such"')
    with pytest.raises(LabError, match="The partitions are"):
        check_job()
