"""Several workers train one model: joined by TF_CONFIG, equal to the last bit."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

import labkit
from labkit.kinds import LabError
from labkit.strategies import workers


@pytest.fixture(scope="module")
def two():
    with labkit.cluster(roles={"chief": 1, "worker": 1}, start=180) as ranks:
        yield ranks


def test_two_workers_train_one_model_and_find_tensorflow_loaded(two):
    """With Adam and Dropout."""

    def train(rank):
        loaded = {"tensorflow", "keras"} <= set(sys.modules)
        import numpy as np

        from labkit.strategies import workers
        from labkit.strategies.practice import practice_job

        me = workers()
        job = practice_job(me, optimizer="adam", learning_rate=0.001, dropout=0.2)
        job.train(epochs=1)
        sums = [float(w.astype("float64").sum()) for w in job.weights()]
        mine = (me.index, me.count, str(me))
        dropped = job.model.layers[2](np.ones((1, 64), "float32"), training=True).numpy().tolist()
        return loaded, mine, dropped, sums, str(job.evaluate())

    first, second = two.run(train, timeout=120, show=False)
    assert first[:2] == (True, (0, 2, "worker 0 of 2 workers"))
    assert second[:2] == (True, (1, 2, "worker 1 of 2 workers"))
    assert first[2] != second[2]  # workers drop different units
    assert first[3:] == second[3:]


@pytest.mark.parametrize(("gpus", "ranks", "ring"), [(1, 2, True), (2, 2, False), (0, 2, False)])
def test_workers_that_share_a_gpu_add_up_without_nccl(gpus, ranks, ring, monkeypatch):
    import tensorflow as tf

    addresses = {"chief": ["127.0.0.1:1"], "worker": ["127.0.0.1:2"]}
    task = {"cluster": addresses, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(task))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(ranks))
    for name, made in (("logical_gpus", [0] * gpus), ("survey", SimpleNamespace(gpus=[0] * gpus))):
        monkeypatch.setattr(sys.modules[workers.__module__], name, lambda made=made: made)
    joined = Mock(return_value=SimpleNamespace(num_replicas_in_sync=4))
    monkeypatch.setattr(tf.distribute, "MultiWorkerMirroredStrategy", joined)
    assert str(workers(timeout=9 + gpus)) == "worker 1 of 2 workers with 2 replicas each"
    options = joined.call_args.kwargs["communication_options"]
    assert (options.timeout_seconds, options.implementation.name == "RING") == (9 + gpus, ring)


@pytest.mark.parametrize("config", ["", "not JSON"])
def test_a_program_without_tf_config_is_told_so(config, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", config)
    with pytest.raises(LabError, match="TF_CONFIG"):
        workers()


def test_a_program_that_used_tensorflow_first_is_told_so(two):
    def too_late(rank):
        import tensorflow as tf

        from labkit.strategies import workers

        tf.constant(1) + 1
        workers()

    with pytest.raises(LabError, match="first line of the program"):
        two.run(too_late, show=False)
