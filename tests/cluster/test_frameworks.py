"""PyTorch, Horovod and Flower in their environments, where `make frameworks` has built them."""

import os
import re
import shutil
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


@pytest.fixture(scope="module")
def serial(tmp_path_factory):
    """The weights after one process, by script."""
    known = {}

    def weights(name, script):
        if script not in known:
            file = tmp_path_factory.mktemp("serial") / "weights.npy"
            with cluster(name, 1) as c:
                c.run_script(SCRIPTS / script, file, timeout=TIMEOUT)
            known[script] = np.load(file)
        return known[script]

    return weights


TRAINING = [("torch", "ddp.py"), ("horovod", "horovod_tape.py")]
LINKS = {} if NO_LINKS else {"hosts": 2, "link": "200 Mbit/s"}


@pytest.mark.parametrize(
    ("name", "script", "ranks", "links"),
    [
        *((*both, 4, LINKS) for both in TRAINING),
        ("torch", "ddp.py fully_shard", 2, {}),
        ("horovod", "horovod_keras.py", 2, {}),
    ],
)
def test_ranks_reach_the_weights_of_one_process(serial, name, script, ranks, links, tmp_path):
    script, *more = script.split()
    with cluster(name, ranks, **links) as c:
        outputs = c.run_script(SCRIPTS / script, tmp_path / "weights.npy", *more, timeout=TIMEOUT)
        sent = [c.traffic().bytes(f"host {host}")[0] for host in (0, 1)] if links else []
    seen = [CHECKSUM.search(text).groups() for text in outputs]
    assert len(set(seen)) == 1, seen
    assert seen[0][0] == str(ranks)
    weights = np.load(tmp_path / "weights.npy")
    np.testing.assert_allclose(weights, serial(name, script), atol=1e-5)
    # Several steps, each with 1.5 times the bytes of the weights.
    assert all(one > weights.nbytes for one in sent)


LAUNCHERS = {
    "torch": ("torchrun", "--nproc-per-node"),
    "horovod": ("horovodrun", "--gloo", "--network-interface", "lo", "-np"),
}


@pytest.mark.parametrize(
    ("name", "arguments", "named"),
    [
        ("torch", ["3", str(SCRIPTS / "torch_for_ever.py"), "1"], r"rank 1 of torchrun .* -9\b"),
        ("horovod", ["3", "python", str(SCRIPTS / "horovod_for_ever.py"), "1"], "Process name: 1"),
    ],
)
def test_the_frameworks_own_launcher_names_a_killed_rank_too(name, arguments, named):
    mark, (launcher, *options) = new_mark(), LAUNCHERS[name]
    with cluster(name, 1, variables={MARK: mark}) as c:
        file = str(c.environment.venv / "bin" / launcher)
        run = c.start(labkit.cluster.Script(file, (*options, *arguments)), show=False)
        run.wait_for("dies", timeout=TIMEOUT)
        assert re.search(named, str(run.finish(timeout=10).fault))
    assert gone(mark)


def test_under_slurm_ranks_of_two_nodes_reach_the_weights_of_one_process(serial, slurm, tmp_path):
    (name, script), folder = TRAINING[1], tmp_path
    with cluster(name, 2, engine="slurm", nodes=2, partition="lab", time=5, folder=folder) as c:
        outputs = c.run_script(SCRIPTS / script, tmp_path / "weights.npy", timeout=TIMEOUT)
    assert len({CHECKSUM.search(text)[2] for text in outputs}) == 1
    np.testing.assert_allclose(np.load(tmp_path / "weights.npy"), serial(name, script), atol=1e-5)


@pytest.mark.parametrize(("name", "script", "nodes"), [(*TRAINING[0], 2), (*TRAINING[1], 1)])
def test_a_batch_script_without_labkit_runs_the_same_file(
    serial, name, script, nodes, slurm, tmp_path, monkeypatch
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
