"""Save a trained model, load it under any strategy, and compare predictions.

Two formats, for two purposes: `model.keras` is the model, to be trained on or changed; the folder
`exported` is a SavedModel, for serving without Keras.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit import plain
from labkit.hardware.devices import import_tensorflow
from labkit.kinds import LabError
from labkit.training.inputs import scale_images
from labkit.training.job import Job
from labkit.training.models import dropout_layer

__all__ = ["Saved", "load", "save"]

COMPARED = 200  # test images whose predictions are compared


@plain.stored
@dataclass(frozen=True)
class Saved:
    """How far the predictions of what was saved are from the model's."""

    images: int
    keras_difference: float
    exported_difference: float

    def __str__(self) -> str:
        return (
            f"Predictions on {self.images} test images differ from the model's by at most "
            f"{self.keras_difference:.1e} (model.keras) and {self.exported_difference:.1e} "
            "(exported/)."
        )

    __repr__ = __str__


def save(job: Job, folder: Any) -> Saved:
    """Write `model.keras` and `exported/` into a folder, load both and compare predictions."""
    import numpy as np

    home = Path(folder)
    keras_file, exported = home / "model.keras", home / "exported"
    home.mkdir(parents=True, exist_ok=True)
    job.model.save(keras_file)
    job.model.export(exported, verbose=False)
    images = scale_images(job.data.x_test[:COMPARED])
    expected = job.model(images, training=False).numpy()
    from_keras = load(keras_file, job.replicas)(images, training=False).numpy()
    served = load(exported)  # must live as long as its functions are used
    from_export = served.serve(images).numpy()
    return Saved(
        images=len(expected),
        keras_difference=float(np.abs(from_keras - expected).max()),
        exported_difference=float(np.abs(from_export - expected).max()),
    )


def load(path: Any, replicas: Any = None) -> Any:
    """A saved model: a Keras model from `….keras`, a servable one from an exported folder.

    With `replicas` a Keras model is made under their strategy, so that each holds a copy.
    """
    tf = import_tensorflow()
    import keras

    dropout_layer()  # registers the course's layer, so that Keras finds it by its name
    source = Path(path)
    if not source.exists():
        raise LabError(
            f"There is nothing at {str(path)!r}. Save a job first: training.save(job, folder)."
        )
    if source.is_dir():
        return tf.saved_model.load(str(source))
    if replicas is None:
        return keras.models.load_model(source)
    with replicas.strategy().scope():
        return keras.models.load_model(source)
