"""Several workers train one model: joined by TF_CONFIG, equal to the last bit, one writes."""

from __future__ import annotations

import re

import pytest

import labkit
from labkit import plain
from labkit.kinds import LabError, measured
from labkit.strategies import sharing, workers
from labkit.strategies.shares import Share, Sharing, read_share


@pytest.fixture(scope="module")
def two():
    preload = ("tensorflow", "keras", "labkit.training.job")
    with labkit.cluster(ranks=2, preload=preload) as ranks:
        yield ranks


def test_two_workers_train_one_model(two, tmp_path):
    """With Adam and warm-up, data resident and streamed; saved once, and it loads."""

    def train(rank, folder):
        import numpy as np

        from labkit.strategies import save_once, workers
        from labkit.strategies.cases import practice_job
        from labkit.training import load

        me = workers()
        job = practice_job(me, optimizer="adam", learning_rate=0.001, dropout=0.2)
        job.train(epochs=1)
        path = save_once(job, folder)
        there = path.exists()
        same = all(
            (a.numpy() == b).all()
            for a, b in zip(load(path).trainable_variables, job.weights(), strict=True)
        )
        streamed = practice_job(me, streamed=True)
        streamed.steps(5)
        sums = [float(w.astype("float64").sum()) for w in [*job.weights(), *streamed.weights()]]
        mine = (me.index, me.count, me.chief, there, same, me.total(rank + 1.0))
        dropped = job.model.layers[2](np.ones((1, 64), "float32"), training=True).numpy().tolist()
        return mine, dropped, sums, str(job.evaluate())

    first, second = two.run(train, str(tmp_path), deadline=60, show=False)
    assert first[0] == (0, 2, True, True, True, 3.0)
    assert second[0] == (1, 2, False, True, True, 3.0)
    assert first[1] != second[1]  # workers drop different units
    assert first[2:] == second[2:]
    assert [path.name for path in tmp_path.iterdir()] == ["model.keras"]


def test_a_program_without_tf_config_is_told_where_to_run(monkeypatch):
    for config in ("", "{}", "not JSON"):
        monkeypatch.setenv("TF_CONFIG", config)
        with pytest.raises(LabError, match=r"TF_CONFIG .*labkit\.cluster\(ranks=2\)"):
            workers()


def test_a_program_that_used_tensorflow_first_is_told_so(two):
    def too_late(rank):
        import tensorflow as tf

        from labkit.strategies import workers

        tf.constant(1) + 1
        workers()

    with pytest.raises(LabError, match=re.escape("first line of the program")):
        two.run(too_late, deadline=30, show=False)


def test_files_are_shared_out_as_the_policy_says(two, tmp_path):
    paths = [tmp_path / "first", tmp_path / "second"]
    for number, path in enumerate(paths):
        path.write_text("".join(f"{4 * number + image}\n" for image in range(4)))
    files = [str(path) for path in paths]
    by_data, by_file = (
        two.run(read_share, policy, files, 8, 4, show=False) for policy in ("data", "file")
    )
    assert by_data == [((0, 1), (4, 5)), ((2, 3), (6, 7))]
    assert by_file == [((0, 1), (2, 3)), ((4, 5), (6, 7))]


def test_what_lies_in_memory_is_shared_by_data_and_never_by_file():
    read = sharing(ranks=2, images=8, batch=4, files=0)
    assert read.verdict("auto") == read.verdict("data") == "every image once"
    assert read.verdict("off") == "every image 2 times, once on each worker"
    assert "do not come from files" in read.verdict("file")
    assert plain.load(plain.dump(read)) == read
    assert "0 1 | 4 5" in str(read)
    assert "never" in sharing_of((0, 1), (0, 1)).verdict("data")


def sharing_of(*read):
    shares = tuple(Share("data", worker, (part,)) for worker, part in enumerate(read))
    return Sharing(len(read), 4, 4, 0, shares, measured("a test"))


@pytest.mark.parametrize("asked", [{"ranks": 1}, {"batch": 1}, {"files": -1}, {"images": "8"}])
def test_an_impossible_sharing_is_refused(asked):
    (name,) = asked
    with pytest.raises(LabError, match=f"{name}=.* is not a whole number"):
        sharing(**asked)
