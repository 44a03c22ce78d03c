"""Batch scripts: what they ask for, what they start, and what is taken out of a notebook."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from labkit import LabError, cli, cluster
from labkit.cluster.batch import Ask
from labkit.cluster.cells import program_of
from labkit.cluster.scripts import script_of_file


def notebook(path, *cells):
    content = [{"cell_type": "code", "source": cell.splitlines(keepends=True)} for cell in cells]
    path.write_text(json.dumps({"cells": [{"cell_type": "markdown", "source": ["# x"]}, *content]}))
    return path


def test_the_header_has_what_was_asked_for_and_nothing_else():
    ask = Ask(
        4, nodes=2, partition="alpha", time="1:00:00", account="p_lab", memory="64000",
        cpus=14, gpus=1, extra=("--reservation=class",), name="train",
    )  # fmt: skip
    assert ask.header("train-%j.log").splitlines() == [
        "#!/bin/bash",
        "#SBATCH --job-name=train",
        "#SBATCH --ntasks=4",
        "#SBATCH --nodes=2",
        "#SBATCH --ntasks-per-node=2",
        "#SBATCH --cpus-per-task=14",
        "#SBATCH --gres=gpu:1",
        "#SBATCH --mem=64000",
        "#SBATCH --partition=alpha",
        "#SBATCH --account=p_lab",
        "#SBATCH --time=1:00:00",
        "#SBATCH --reservation=class",
        "#SBATCH --output=train-%j.log",
    ]
    assert Ask(3).options() == ["--job-name=labkit", "--ntasks=3"]
    assert "--ntasks-per-node" not in Ask(3, nodes=2).header()  # 3 ranks are not dealt out evenly


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"ranks": 0}, "ranks=0"),
        ({"ranks": 2, "nodes": 3}, "nodes=3"),
        ({"ranks": 2, "time": "one hour"}, "time='one hour'"),
        ({"ranks": 2, "memory": "64 GB"}, "memory='64 GB'"),
        ({"ranks": 2, "partition": "a\n#SBATCH --wrap=x"}, "partition="),
        ({"ranks": 2, "extra": "--exclusive"}, r'extra=\("--exclusive",\)'),
        ({"ranks": 2, "extra": ("exclusive",)}, "'exclusive'"),
        ({"ranks": 2, "gpus": True}, "gpus=True"),
    ],
)
def test_what_slurm_would_not_take_is_said_before_it_is_sent(asked, said):
    with pytest.raises(LabError, match=said):
        Ask(**asked)


CELLS = (
    "from __future__ import annotations\nimport math, os\nfrom time import sleep as nap",
    "%matplotlib inline\nsteps = 10\nsteps += 5\nprint('training now')",
    "def area(r):\n    return math.pi * r * r",
    "class Model:\n    size = steps",
    "@staticmethod\ndef unused(): pass",
    "def train(rank):\n    return area(rank) + Model.size",
    "train(0)",
    "def train(rank):\n    '''The better one: 100 % of it?'''\n    return area(rank) - Model.size",
    "%%bash\ndef train(",
    "half of a cell(",
)


def test_a_program_is_taken_out_of_its_notebook_with_all_that_it_needs():
    text = program_of(CELLS, "train")
    made = {}
    exec(compile(text, "train.py", "exec"), made)
    assert made["train"](1) == pytest.approx(3.14159 - 15, abs=1e-4)
    assert text.startswith("from __future__ import annotations\n")
    for absent in ("training now", "nap", "unused", "train(0)", "matplotlib"):
        assert absent not in text


@pytest.mark.parametrize(
    ("cells", "returned"),
    [
        (("%%time\nfrom math import *\n", "def train(rank):\n    return sqrt(rank)"), 2.0),
        (("given = {}", "given['rate'] = 3", "def train(rank): return given"), {"rate": 3}),
        (("try:\n    import json\nfinally:\n    1", "def train(r): return json.dumps(r)"), "4"),
        (("if True:\n    def half(x): return x / 2", "def train(rank): return half(rank)"), 2.0),
    ],
)  # fmt: skip
def test_what_a_program_needs_may_be_made_in_many_ways(cells, returned):
    made = {}
    exec(compile(program_of(cells, "train"), "train.py", "exec"), made)
    assert made["train"](4) == returned


def test_what_a_program_needs_and_no_cell_makes_is_said_before_the_job_waits():
    cells = ("files = !ls", "def train(rank):\n    here = rank\n    return files, helper(here)")
    with pytest.raises(LabError, match=r"train needs files, helper, and no cell of"):
        program_of(cells, "train")


def test_a_program_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(LabError, match=r"no program 'trian'.* Model, area, train, unused"):
        program_of(CELLS, "trian")


def test_a_script_of_a_file_starts_its_function_on_every_rank(tmp_path):
    (tmp_path / "train.py").write_text("def train(rank):\n    print(rank)\n")
    script = script_of_file(tmp_path / "train.py", None, Ask(2, cpus=4))
    lines = script.text.splitlines()
    assert "srun --kill-on-bad-exit=1 --label --cpus-per-task=4 \\" in lines
    assert lines[-1].endswith(f"labkit.cli slurm run {tmp_path}/train.py:train")
    assert subprocess.run(["bash", "-n"], input=script.text, text=True).returncode == 0


def test_the_command_writes_the_script_and_a_notebooks_program(tmp_path, capsys):
    path = notebook(tmp_path / "09 many.ipynb", *CELLS)
    job = tmp_path / "job.sh"
    asked = ["--program", "train", "--ranks", "4", "--nodes", "2", "--partition", "alpha"]
    assert cli.main(["slurm", "script", str(path), *asked, "-o", str(job)]) == 0
    program = tmp_path / "09 many_train.py"
    assert capsys.readouterr().out == (
        f"Wrote {program}\nWrote {job}. Send it with: sbatch {job}\n"
    )
    assert program.read_text().startswith("# Made by labkit from 09 many.ipynb.\n")
    assert f"slurm run '{program}:train'" in job.read_text()
    assert "#SBATCH --partition=alpha" in job.read_text()
    assert job.stat().st_mode & 0o100
    # Again is no mistake; to write over somebody's own file is.
    assert cli.main(["slurm", "script", str(path), *asked, "-o", str(job)]) == 0
    program.write_text("mine = 1\n")
    assert cli.main(["slurm", "script", str(path), *asked, "-o", str(job)]) == 2
    assert "was not written by labkit" in capsys.readouterr().err
    assert program.read_text() == "mine = 1\n"
    program.unlink()
    job.write_text("#!/bin/bash\nmine\n")
    assert cli.main(["slurm", "script", str(path), *asked, "-o", str(job)]) == 2
    assert (job.read_text(), program.exists()) == ("#!/bin/bash\nmine\n", False)


@pytest.mark.parametrize(
    ("name", "text", "asked", "said"),
    [
        ("a.py", "def f(rank): pass\ndef g(rank): pass\n", [], "--program.*f, g"),
        ("a.py", "def f(rank): pass\n", ["--program", "g"], "no program 'g'.*It has: f"),
        ("a.txt", "", [], "neither a .py nor an .ipynb"),
        ("a.ipynb", "{", ["--program", "f"], "no notebook that can be read"),
        ("a.py", "def f(rank): pass\n", ["--time", "soon"], "time='soon'"),
    ],
)
def test_a_mistake_on_the_command_line_is_a_sentence(tmp_path, capsys, name, text, asked, said):
    (tmp_path / name).write_text(text)
    assert cli.main(["slurm", "script", str(tmp_path / name), *asked]) == 2
    assert re.search(said, capsys.readouterr().err)


def test_a_function_of_a_file_has_a_script_too(tmp_path, monkeypatch):
    (tmp_path / "mine_to_run.py").write_text("def work(rank):\n    return rank\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    from mine_to_run import work

    script = cluster.batch_script(work, ranks=2, partition="alpha")
    assert repr(script) == script.text
    assert f"{tmp_path}/mine_to_run.py:work" in script.text
    assert script.save(tmp_path / "job.sh").read_text() == script.text
    with pytest.raises(LabError, match="There is no folder"):
        script.save(tmp_path / "nowhere" / "job.sh")


def test_a_function_of_a_cell_takes_its_cells_along(tmp_path):
    program = f"""
import os; os.chdir({str(tmp_path)!r})
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for cell in ("import math", "print('once')", "def area(rank): return math.pi * rank"):
    shell.run_cell(cell, store_history=True)
shell.run_cell("from labkit import cluster\\ns = cluster.batch_script(area, ranks=2)\\ns.save()")
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert (tmp_path / "area_program.py").read_text() == (
        "# Made by labkit from a notebook.\nimport math\n\n\n"
        "def area(rank): return math.pi * rank\n"
    )
    assert f"{tmp_path}/area_program.py:area" in (tmp_path / "area.sh").read_text()


def test_a_rank_that_slurm_did_not_start_says_so(tmp_path, capsys, monkeypatch):
    for name in ("SLURM_PROCID", "RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "train.py").write_text("def train(rank): pass\n")
    assert cli.main(["slurm", "run", f"{tmp_path}/train.py:train"]) == 2
    assert "was not started as a rank" in capsys.readouterr().err
