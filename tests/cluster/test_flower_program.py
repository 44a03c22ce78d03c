"""Lecture 25's Flower app: its FedAvg is the weighted average of its local training."""

import ast
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import labkit
from labkit import environments

PROGRAM = Path(__file__).parents[2] / "notebooks/programs/25_flower.py"
RECORDING = PROGRAM.parent / "recordings/25_flower.json"


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
    flower, needed = environments.find("flower"), os.environ.get("LABKIT_REQUIRE_ENVIRONMENTS")
    if not flower.stamp and needed != "1":
        pytest.skip(flower.how_to_build())
    with labkit.cluster(ranks=ranks, environment="flower", start=300) as c:
        outputs = c.run_script(PROGRAM, rounds, steps, timeout=300)
    np.testing.assert_allclose(written(outputs[0]), serial(ranks, rounds, steps), atol=1e-8)


@pytest.mark.parametrize("name", ["25_flower.py", "23_under_slurm.py"])
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
