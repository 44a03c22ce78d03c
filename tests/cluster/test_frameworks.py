"""PyTorch, Horovod and Flower in their environments, where `make frameworks` has built them."""

import functools
import os
import re
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest

import labkit
from labkit import environments
from tests.cluster.leftovers import MARK, gone, new_mark
from tests.cluster.private_slurm import wait_for
from tests.cluster.test_links import NO_LINKS

SCRIPTS = Path(__file__).parent / "scripts"
CHECKSUM = re.compile(r"rank \d of (\d): checksum (-?\d+\.\d{4})")  # torchrun may mix two lines
FLOWER = environments.FOLDER / "flower" / "check.py"
TIMEOUT = 300  # on a machine that does much else


def cluster(name, ranks, **keywords):
    """Ranks in an environment, or a skipped test that says how to build it."""
    if not environments.find(name).stamp and os.environ.get("LABKIT_REQUIRE_ENVIRONMENTS") != "1":
        pytest.skip(f"not built: labkit env build {name}")
    return labkit.cluster(ranks=ranks, environment=name, start=TIMEOUT, **keywords)


@functools.cache
def serial(name, script):
    """The weights after one process."""
    with cluster(name, 1) as c, tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "weights.npy")
        c.run_script(SCRIPTS / script, file, timeout=TIMEOUT)
        return np.load(file)


TRAINING = [("torch", "ddp.py"), ("horovod", "horovod_tape.py")]
LINKS = {} if NO_LINKS else {"hosts": 2, "link": "200 Mbit/s"}


@pytest.mark.parametrize(("name", "script"), TRAINING)
def test_ranks_reach_the_weights_of_one_process(name, script, tmp_path):
    with cluster(name, 4, **LINKS) as c:
        outputs = c.run_script(SCRIPTS / script, tmp_path / "weights.npy", timeout=TIMEOUT)
        sent = [c.traffic().bytes(f"host {host}")[0] for host in (0, 1)] if LINKS else []
    seen = [CHECKSUM.search(text).groups() for text in outputs]
    assert len(set(seen)) == 1, seen
    assert seen[0][0] == "4"
    weights = np.load(tmp_path / "weights.npy")
    np.testing.assert_allclose(weights, serial(name, script), atol=1e-5)
    # Several steps, each with 1.5 times the bytes of the weights.
    assert all(one > weights.nbytes for one in sent)


def test_under_slurm_ranks_of_two_nodes_reach_the_weights_of_one_process(slurm, tmp_path):
    (name, script), folder = TRAINING[1], tmp_path
    with cluster(name, 2, engine="slurm", nodes=2, partition="lab", time=5, folder=folder) as c:
        outputs = c.run_script(SCRIPTS / script, tmp_path / "weights.npy", timeout=TIMEOUT)
    assert len({CHECKSUM.search(text)[2] for text in outputs}) == 1
    np.testing.assert_allclose(np.load(tmp_path / "weights.npy"), serial(name, script), atol=1e-5)


@pytest.mark.parametrize(("name", "script", "nodes"), [(*TRAINING[0], 2), (*TRAINING[1], 1)])
def test_a_batch_script_without_labkit_runs_the_same_file(
    name, script, nodes, slurm, tmp_path, monkeypatch
):
    reference = serial(name, script)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    shutil.copy(SCRIPTS / script, "train.py")
    cluster_of = {"nodes": nodes, "partition": "lab", "time": 5}
    file = labkit.cluster.batch_script("train.py", ranks=2, environment=name, **cluster_of).save()
    slurm.ask("sbatch", str(file), "weights.npy")
    wait_for(lambda: slurm.jobs() == [], "the end of the job", TIMEOUT)
    (log,) = tmp_path.glob("*.log")
    assert [ranks for ranks, _ in CHECKSUM.findall(log.read_text())] == ["2", "2"]
    np.testing.assert_allclose(np.load("weights.npy"), reference, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "script", "arguments", "sign"),
    [
        ("torch", SCRIPTS / "torch_for_ever.py", (), "reduced"),
        ("horovod", SCRIPTS / "horovod_for_ever.py", (), "reduced"),
        ("flower", FLOWER, ("1000000000",), "trains"),
    ],
)
def test_a_killed_rank_ends_the_job_with_its_name_and_nothing_stays(name, script, arguments, sign):
    mark = new_mark()
    with cluster(name, 3, variables={MARK: mark}) as c:
        run = c.start(labkit.cluster.Script(str(script), arguments), show=False)
        for rank in range(3):
            run.wait_for(sign, rank=rank, timeout=TIMEOUT)
        run.kill(1)
        outcome = run.finish(timeout=10)
        assert str(outcome.fault).startswith("Rank 1 was killed by signal 9 (SIGKILL)")
    assert gone(mark)
