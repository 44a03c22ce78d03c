"""Lecture 61's Flower app: its FedAvg is the weighted average of its local training."""

import ast
import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from labkit import environments
from tests.cluster.test_frameworks import TIMEOUT, cluster

PROGRAM = Path(__file__).parents[2] / "notebooks/programs/62_flower.py"
RECORDING = PROGRAM.parent / "recordings/62_flower.json"


def serial(sites, rounds, steps):
    """FedAvg in numpy, with the program's own examples and local training."""
    tree = ast.parse(PROGRAM.read_text(encoding="utf-8"))
    kept = [one for one in tree.body if getattr(one, "name", "") in {"site", "local"}]
    space = {"np": np}
    exec(compile(ast.Module(kept, []), str(PROGRAM), "exec"), space)
    data, weights = [space["site"](number) for number in range(sites)], np.zeros(4)
    for _ in range(rounds):
        results = [space["local"](weights, x, y, steps) for x, y in data]
        weights = np.average(results, axis=0, weights=[len(y) for _, y in data])
    return weights


def written(text):
    return np.array(text.partition("weights ")[2].split()[:4], dtype=float)


@pytest.mark.parametrize(("ranks", "rounds", "steps"), [(2, 4, 1), (4, 3, 7)])
def test_flower_and_numpy_reach_the_same_weights(ranks, rounds, steps):
    with cluster("flower", ranks) as c:
        outputs = c.run_script(PROGRAM, rounds, steps, timeout=TIMEOUT)
    np.testing.assert_allclose(written(outputs[0]), serial(ranks, rounds, steps), atol=1e-8)


@pytest.mark.parametrize("name", ["62_flower.py", "60_under_slurm.py"])
def test_a_program_that_was_started_otherwise_says_how(name):
    beside = environments.find(name.partition("_")[2][:-3].replace("under_slurm", "horovod"))
    if not beside.stamp:
        pytest.skip(beside.how_to_build())
    command = [beside.python, PROGRAM.with_name(name), "train.py"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert f"python {name}" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_recorded_run_has_these_weights_too():
    [run] = json.loads(RECORDING.read_text(encoding="utf-8"))["value"]["runs"]
    [weights] = [written(line["text"]) for line in run["lines"] if line["rank"] == 0]
    rounds, steps = map(int, run["arguments"])
    np.testing.assert_allclose(weights, serial(run["ranks"], rounds, steps), atol=1e-8)


def test_the_simulator_has_the_weights_of_numpy_and_the_loss_of_all_examples():
    program = PROGRAM.with_name("62_simulation.py")
    tree = ast.parse(program.read_text(encoding="utf-8"))
    space = {"np": np}
    kept = [one for one in tree.body if getattr(one, "name", "") == "site"]
    exec(compile(ast.Module(kept, []), str(program), "exec"), space)
    sites, weights = [space["site"](number) for number in range(6)], np.zeros(4)
    for _ in range(2):
        results = []
        for number, (x, y) in enumerate(sites):
            mine = weights
            for _ in range(5):
                mine = mine - 0.1 * (x @ mine - y) @ x / len(y)
            results.append(mine * (10 if number == 5 else 1))
        weights = np.median(results, axis=0)
    with cluster("flower", 1) as c:
        [text] = c.run_script(program, "median", 2, timeout=TIMEOUT, show=False)
    np.testing.assert_allclose(written(text), weights, rtol=1e-6)
    loss = np.mean(np.concatenate([(x @ weights - y) ** 2 for x, y in sites]))
    assert float(text.partition("round 2: ")[2].split()[5]) == pytest.approx(loss, rel=1e-6)
