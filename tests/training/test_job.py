"""A job: what it trains on, what it keeps, and what it says when it is asked for the impossible."""

from __future__ import annotations

import math

import numpy as np
import pytest

from labkit import plain
from labkit.kinds import LabError
from labkit.telemetry.spans import listening
from labkit.training import Job
from labkit.training.history import Epoch, Score, Training
from labkit.training.pipeline import order_of, stream
from labkit.training.scaling import batches, scaled_learning_rate


def test_training_learns_and_keeps_one_line_an_epoch(data, two):
    """Two epochs leave two lines, a falling loss, and the accuracy of `evaluate`."""
    job = Job("dense", data, replicas=two, batch=64)
    found = job.train(2)
    assert len(found.epochs) == 2
    assert found.epochs[1].loss < found.epochs[0].loss
    assert found.accuracy == job.evaluate().accuracy > 0.95
    assert found.images_per_second == pytest.approx(2 * 200 * 64 / found.seconds)
    assert (found.parameters, found.steps_per_epoch, found.replicas) == (101_770, 200, 2)
    assert "patterns" in str(found)
    assert "measured on 2 logical CPUs" in str(found)


def test_an_evaluation_can_be_shared_in_parts(data, one):
    """Every test image is in one part, so that the parts add up to the whole."""
    job = Job("dense", data, replicas=one, images=1280)
    job.epoch()
    whole, parts = job.evaluate(), [job.evaluate(part, 3) for part in range(3)]
    assert sum(part.images for part in parts) == whole.images
    right = sum(part.accuracy * part.images for part in parts)
    assert right == pytest.approx(whole.accuracy * whole.images)
    with pytest.raises(LabError, match="no part 3 of 3"):
        job.evaluate(3, 3)


def test_a_job_marks_its_epochs_for_whoever_watches(data, one):
    """A panel shows each epoch as a band, with its images; the evaluation lies outside."""
    heard = []
    job = Job("dense", data, replicas=one, images=1280)
    with listening(heard.append):
        job.train(2)
        job.epoch()
    ended = [span for span in heard if span.end is not None]
    assert [(span.name, span.images, span.by) for span in ended] == [
        ("epoch 1", 1280, "training"),
        ("epoch 2", 1280, "training"),
        ("epoch", 1280, "training"),
    ]
    assert ended[0].end <= ended[1].start


def test_training_again_goes_on(data, one):
    """A second call adds epochs to the first, over images in another order."""
    job = Job("dense", data, replicas=one, images=1280)
    job.train(1)
    assert len(job.train(1).epochs) == 2
    assert (order_of(100, 0, 0).numpy() != order_of(100, 1, 0).numpy()).any()


def test_an_epoch_visits_every_image_once(data, four):
    """The slices of four replicas make up the whole set, with no image twice."""
    seen = []

    def step(model, optimizer, images, labels, global_batch, reduce):
        import tensorflow as tf

        tf.py_function(lambda x: seen.extend(x.numpy().sum(axis=(1, 2)).tolist()), [images], [])
        return tf.constant(0.0)

    Job("dense", data, replicas=four, batch=64, images=640, step=step).epoch()
    expected = (data.x_train[:640] / np.float32(255)).sum(axis=(1, 2), dtype=np.float32)
    assert sorted(seen) == pytest.approx(sorted(expected.tolist()), rel=1e-4)


def test_a_streamed_pass_gives_every_image_once():
    """Shuffled before batching, so that batches differ, and nothing is lost or doubled."""
    images = np.arange(96, dtype=np.uint8).reshape(96, 1)
    pipeline = stream(images, images[:, 0], batch=32, seed=1)
    one_pass = [x.numpy()[:, 0] for x, _ in pipeline.take(3)]
    assert sorted(np.concatenate(one_pass)) == list(range(96))
    assert sorted(one_pass[0]) != list(range(32))


def test_a_streamed_job_learns_on_replicas(data, two):
    """The other door for images: dealt out by tf.data instead of resident."""
    found = Job("dense", data, replicas=two, batch=64, streamed=True).train(1)
    assert found.accuracy > 0.95


def test_the_loss_is_the_mean_over_the_global_batch(data, one, two):
    """With a rate too small to learn, the loss is that of the untrained model, however placed."""
    asked = {"batch": 64, "optimizer": "sgd", "learning_rate": 1e-30, "dropout": 0.0, "images": 640}
    alone, both = (Job("dense", data, replicas=r, **asked) for r in (one, two))
    images, labels = data.x_train[:640].astype("float32") / 255, data.y_train[:640]
    logits = np.asarray(alone.model(images))
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_softmax = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    expected = -log_softmax[np.arange(640), labels].mean()
    assert alone.epoch() == pytest.approx(expected, rel=1e-5)
    assert both.epoch() == pytest.approx(expected, rel=1e-5)


def test_evaluation_counts_every_test_image(data, one):
    """1,234 images in pieces of 1000: the last piece is not lost, and not counted as whole."""
    job = Job("dense", data, replicas=one, images=1280)
    logits = np.asarray(job.model(data.x_test.astype("float32") / 255))
    found = job.evaluate()
    assert found.images == 1234
    assert found.accuracy == pytest.approx((logits.argmax(1) == data.y_test).mean())


def test_ctrl_c_keeps_the_finished_epochs(data, one, monkeypatch):
    """Interrupted in the second epoch: the record holds the first, and says so."""
    job = Job("dense", data, replicas=one, images=1280)
    real, calls = job.advance, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) > 1:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(job, "advance", interrupted)
    found = job.train(5)
    assert len(found.epochs) == 1
    assert found.interrupted
    assert "Interrupted" in str(found)


def test_a_student_can_bring_a_model_of_their_own(data, one):
    """A function is called under the strategy's scope; its model is trained."""
    import keras

    def tiny():
        return keras.Sequential(
            [keras.Input((28, 28)), keras.layers.Flatten(), keras.layers.Dense(10)], name="tiny"
        )

    found = Job(tiny, data, replicas=one, images=6400, learning_rate=0.01).train(1)
    assert (found.model, found.parameters) == ("tiny", 7850)
    assert found.accuracy > 0.5


def model_ending(units, **options):
    import keras

    layers = [keras.layers.Flatten(), keras.layers.Dense(units, **options)]
    return keras.Sequential([keras.Input((28, 28)), *layers])


def test_an_epoch_is_whole_global_batches(data, one):
    """1000 images in batches of 600: one step, and 600 images are what was trained on."""
    job = Job("dense", data, replicas=one, batch=np.int64(600), images=1000)
    assert (job.steps_per_epoch, job.images) == (1, 600)


def test_a_job_with_a_reduction_goes_back_to_one_device(data, two, one):
    """One device has nothing to reduce; the breakdown needs the job there too."""
    job = Job("dense", data, replicas=two, batch=64, images=640, reduction="hierarchical copy")
    assert job.on(one).replicas.count == 1


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"batch": 0}, "from 1 on"),
        ({"batch": 2.0}, "from 1 on"),
        ({"batch": 33}, "multiple of 2"),
        ({"batch": 20_000}, "smaller batch"),
        ({"scaling": "sideways"}, "'strong'"),
        ({"optimizer": "lamb"}, "'adam' or 'sgd'"),
        ({"learning_rate": 0}, "0.001"),
        ({"learning_rate": "fast"}, "number"),
        ({"warmup_steps": -1}, "warmup_steps"),
        ({"images": 10**6}, "12,800"),
        ({"model": "transformer"}, "'dense'"),
        ({"model": lambda: 3}, "Keras model"),
        ({"data": None}, "labkit.datasets.mnist()"),
        ({"reduction": "telepathy"}, "telepathy"),
        ({"replicas": 2}, "labkit.replicas(2)"),
        ({"dropout": 1.0}, "share"),
        ({"seed": -1}, "seed=-1"),
        ({"model": lambda: model_ending(5)}, "Dense(10)"),
        ({"model": lambda: model_ending(10, activation="softmax")}, "logits"),
        ({"model": lambda: model_ending(10, kernel_regularizer="l2")}, "regularizers"),
    ],
)
def test_an_impossible_job_says_what_to_do(data, two, wrong, says):
    """A LabError with the remedy, never a traceback from inside TensorFlow."""
    asked = {"model": "dense", "data": data, "replicas": two, "batch": 64, **wrong}
    with pytest.raises(LabError) as caught:
        Job(asked.pop("model"), asked.pop("data"), **asked)
    assert says in str(caught.value)


@pytest.mark.parametrize("epochs", [0, -1, 1.5, True, "many"])
def test_epochs_are_counted_from_one(data, one, epochs):
    job = Job("dense", data, replicas=one, images=1280)
    with pytest.raises(LabError, match="from 1 on"):
        job.train(epochs)


def test_global_batch_by_the_name_of_the_scaling():
    """Strong keeps the global batch, weak keeps the replica's."""
    assert batches(64, 2, "strong") == (64, 32)
    assert batches(64, 2, "weak") == (128, 64)


def test_linear_rule_gives_the_published_rate():
    """Goyal et al. 2017: 0.1 at 256 becomes 3.2 at 8192."""
    assert scaled_learning_rate(0.1, batch=8192, base_batch=256) == pytest.approx(3.2)


def record(*seconds_and_accuracy):
    from labkit.kinds import measured

    epochs = tuple(Epoch(s, 1.0, a) for s, a in seconds_and_accuracy)
    return Training("dense", 5, "d", 100, 2, 10, 10, 0.5, epochs, measured("x"))


def test_time_to_an_accuracy_adds_up_the_epochs_until_then():
    """0.9 was reached at the end of the second epoch, 0.99 never."""
    found = record((1.0, 0.8), (2.0, 0.9), (4.0, 0.95))
    assert found.time_to(0.9) == 3.0
    assert found.time_to(0.99) is None


def test_a_record_survives_json(tmp_path):
    found = record((1.0, 0.8))
    found.save(tmp_path / "run.json")
    assert plain.load((tmp_path / "run.json").read_text()) == found


def test_a_record_without_epochs_has_no_throughput():
    """Interrupted at once: nothing is divided by zero."""
    assert math.isnan(record().images_per_second)
    assert "unknown" in str(record())


def test_a_score_reads_as_a_sentence():
    assert str(Score(0.1234, 0.975, 1000)) == "loss 0.1234, accuracy 97.5 % on 1,000 test images"
