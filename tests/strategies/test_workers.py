"""Several workers train one model: joined by TF_CONFIG, equal to the last bit, one writes."""

from __future__ import annotations

import pytest

import labkit
from labkit.kinds import LabError
from labkit.strategies import workers


@pytest.fixture(scope="module")
def two():
    with labkit.cluster(ranks=2) as ranks:
        yield ranks


def test_two_workers_train_one_model(two, tmp_path):
    """With Adam and Dropout; saved once, and it loads."""

    def train(rank, folder):
        import keras
        import numpy as np

        from labkit.strategies import save_once, workers
        from labkit.strategies.practice import practice_job

        me = workers()
        job = practice_job(me, optimizer="adam", learning_rate=0.001, dropout=0.2)
        job.train(epochs=1)
        path = save_once(job, folder)
        there, saved = path.exists(), keras.models.load_model(path)
        same = all(
            (a.numpy() == b).all()
            for a, b in zip(saved.trainable_variables, job.weights(), strict=True)
        )
        sums = [float(w.astype("float64").sum()) for w in job.weights()]
        mine = (me.index, me.count, me.chief, str(me), there, same, me.total(rank + 1.0))
        dropped = job.model.layers[2](np.ones((1, 64), "float32"), training=True).numpy().tolist()
        return mine, dropped, sums, str(job.evaluate())

    first, second = two.run(train, str(tmp_path), show=False)
    assert first[0] == (0, 2, True, "worker 0 of 2 workers", True, True, 3.0)
    assert second[0] == (1, 2, False, "worker 1 of 2 workers", True, True, 3.0)
    assert first[1] != second[1]  # workers drop different units
    assert first[2:] == second[2:]
    assert [path.name for path in tmp_path.iterdir()] == ["model.keras"]


@pytest.mark.parametrize("config", ["", "{}", "not JSON"])
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
