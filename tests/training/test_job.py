"""A job: what it trains on, what it records, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from labkit.kinds import LabError, measured
from labkit.telemetry.spans import listening
from labkit.training import History, Job
from labkit.training.history import Epoch
from labkit.training.inputs import epoch_order, in_memory


def test_training_learns_and_keeps_one_line_an_epoch(data, two):
    """Two calls leave two lines, a falling loss, and the accuracy of `evaluate`."""
    job = Job("dense", data, replicas=two, batch=64)
    assert len(job.train(1).epochs) == 1
    found = job.train(1)
    assert found.epochs[1].loss < found.epochs[0].loss
    assert found.accuracy == job.evaluate().accuracy > 0.95
    assert found.images_per_second == pytest.approx(2 * 200 * 64 / found.seconds)
    assert (found.parameters, found.steps_per_epoch, found.replicas) == (101_770, 200, 2)
    assert "patterns" in str(found)
    assert "measured on 2 logical CPUs" in str(found)


def test_evaluation_counts_every_test_image_once_and_each_epoch_is_a_span(data, one):
    """1,234 images, 1000 at a time: the last 234 are not lost."""
    heard = []
    job = Job("dense", data, replicas=one, images=1280)
    logits = np.asarray(job.model(data.x_test.astype("float32") / 255))
    found = job.evaluate()
    assert found.accuracy == pytest.approx((logits.argmax(1) == data.y_test).mean())
    assert found.images == 1234
    right = logits[np.arange(1234), data.y_test]
    expected = (np.log(np.exp(logits).sum(axis=1)) - right).mean()
    assert found.loss == pytest.approx(expected, rel=1e-4)
    with listening(heard.append):
        job.train(2)
        job.epoch()
    ended = [(span.name, span.images) for span in heard if span.end is not None]
    assert ended == [("epoch 1", 1280), ("epoch 2", 1280), ("epoch", 1280)]


def test_an_epoch_visits_every_image_once_in_a_new_order(four):
    """The slices of four replicas in all steps make up the whole set, with no image twice."""
    import tensorflow as tf

    images = np.arange(96, dtype=np.uint8)
    strategy = four.strategy()
    inputs = in_memory(strategy, images, images, batch=8)
    order = epoch_order(96, epoch=0, seed=7)

    @tf.function
    def step(number):
        return strategy.run(inputs.batch_at, args=inputs.arguments(order, number))

    seen = []
    for number in range(3):
        pictures, labels = step(tf.constant(number))
        pictures, labels = map(strategy.experimental_local_results, (pictures, labels))
        assert all((a.numpy() == b.numpy()).all() for a, b in zip(pictures, labels, strict=True))
        seen += [value for part in labels for value in part.numpy()]
    assert seen == order.numpy().tolist() != epoch_order(96, epoch=1, seed=7).numpy().tolist()


def test_the_loss_is_the_mean_over_the_global_batch(data, one, two):
    """With a rate too small to learn, the loss is that of the untrained model, however placed."""
    asked = {"batch": 64, "optimizer": "sgd", "learning_rate": 1e-30, "dropout": 0.0, "images": 640}
    alone, both = (Job("dense", data, replicas=r, **asked) for r in (one, two))
    logits = np.asarray(alone.model(data.x_train[:640].astype("float32") / 255))
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_softmax = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    expected = -log_softmax[np.arange(640), data.y_train[:640]].mean()
    assert alone.epoch() == pytest.approx(expected, rel=1e-5)
    assert both.epoch() == pytest.approx(expected, rel=1e-5)


def test_ctrl_c_keeps_the_finished_epochs(data, one, monkeypatch):
    """Interrupted in the second epoch: the record holds the first, and says so."""
    job = Job("dense", data, replicas=one, images=1280)
    real, calls = job.run_steps, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) > 1:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(job, "run_steps", interrupted)
    found = job.train(5)
    assert len(found.epochs) == 1
    assert found.interrupted
    assert "Interrupted" in str(found)


def test_one_device_has_nothing_to_reduce(data, one, two):
    job = Job("dense", data, replicas=two, batch=600, images=1000, reduction="hierarchical copy")
    assert (job.steps_per_epoch, job.images) == (1, 600)  # whole global batches only
    assert job.on(one, model="convolutional").replicas.count == 1


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"batch": 33}, "multiple of 2"),
        ({"dropout": 1}, "dropout"),
        ({"images": 10**6}, "12800"),
        ({"data": None}, "labkit.datasets.mnist()"),
        ({"replicas": 2}, "labkit.replicas(2)"),
    ],
)
def test_an_impossible_job_says_what_to_do(data, two, wrong, says):
    """A LabError with the remedy, never a traceback from inside TensorFlow."""
    asked = {"model": "dense", "data": data, "replicas": two, "batch": 64, **wrong}
    with pytest.raises(LabError) as caught:
        Job(**asked)
    assert says in str(caught.value)


def record(*seconds_and_accuracy):
    epochs = tuple(Epoch(s, 1.0, a) for s, a in seconds_and_accuracy)
    return History("dense", 5, "d", 100, 2, 10, 10, 0.5, epochs, measured("x"))


def test_a_record_knows_its_time_to_an_accuracy_and_draws_its_curves():
    """0.9 was reached at the end of the second epoch, 0.99 never."""
    found = record((1.0, 0.8), (2.0, 0.9), (4.0, 0.95))
    assert found.time_to(0.9) == 3.0
    assert found.time_to(0.99) is None
    assert found.curves().png[:4] == b"\x89PNG"
    assert "unknown" in str(record())  # interrupted at once: nothing is divided by zero
