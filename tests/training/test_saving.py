"""What is saved is what was trained."""

from __future__ import annotations

import numpy as np
import pytest

from labkit.kinds import LabError
from labkit.training import Job, load, save


@pytest.mark.parametrize("model", ["dense", "convolutional"])
def test_both_formats_predict_what_the_model_predicts(data, two, tmp_path, model):
    """Trained, saved and loaded under a strategy of two replicas."""
    job = Job(model, data, replicas=two, batch=64, images=640)
    job.epoch()
    saved = save(job, tmp_path / "here")
    assert saved.keras_difference < 1e-5
    assert saved.exported_difference < 1e-5
    assert "Predictions on 200 test images" in str(saved)
    again = load(tmp_path / "here" / "model.keras", two)
    kernel = again.trainable_variables[0].value
    assert len(job.strategy.experimental_local_results(kernel)) == 2
    assert all(
        (a == b.numpy()).all()
        for a, b in zip(job.weights(), again.trainable_variables, strict=True)
    )


def test_a_model_trained_on_two_loads_on_one(data, two, one, tmp_path):
    job = Job("dense", data, replicas=two, batch=64, images=640)
    save(job, tmp_path)
    images = data.x_test[:5].astype("float32") / 255
    found = np.asarray(load(tmp_path / "model.keras", one)(images, training=False))
    assert found == pytest.approx(np.asarray(job.model(images, training=False)), abs=1e-5)


def test_what_is_not_there_is_named(tmp_path):
    with pytest.raises(LabError, match="Save a job first"):
        load(tmp_path / "nowhere.keras")
