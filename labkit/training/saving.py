"""Save a trained model, load it under any strategy, and prove by prediction that it is the same.

Two formats, for two purposes: `model.keras` is the model, to be trained on or changed; the folder
`exported` is a SavedModel, for serving without Keras.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit import plain
from labkit.hardware.devices import import_tensorflow
from labkit.kinds import LabError, bytes_text
from labkit.training.models import dropout_layer
from labkit.training.pipeline import scaled

if TYPE_CHECKING:
    from labkit.training.job import Job

__all__ = ["Saved", "load", "save"]

PROBES = 200  # test images on which the saved model must agree


@plain.stored
@dataclass(frozen=True)
class Saved:
    """What was written, and how far the predictions of what came back lie from the original."""

    keras_bytes: int
    exported_bytes: int
    probes: int
    keras_difference: float
    exported_difference: float

    def __str__(self) -> str:
        return (
            f"model.keras ({bytes_text(self.keras_bytes)}) and exported/ "
            f"({bytes_text(self.exported_bytes)}) give the same predictions on {self.probes} test "
            f"images: largest difference {self.keras_difference:.1e} and "
            f"{self.exported_difference:.1e}."
        )

    __repr__ = __str__


def save(job: Job, folder: Any) -> Saved:
    """Write `model.keras` and `exported/` into a folder, read both back and compare predictions."""
    import numpy as np

    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
        job.model.save(place / "model.keras")
        job.model.export(place / "exported", verbose=False)
    except OSError as fault:
        raise LabError(
            f"The model could not be written to {str(folder)!r}: {fault.strerror or fault}. "
            "Give a folder that you may write to, on a disk with room."
        ) from fault
    images = scaled(job.data.x_test[:PROBES])
    expected = job.model(images, training=False).numpy()
    from_keras = load(place / "model.keras", job.replicas)(images, training=False).numpy()
    exported = load(place / "exported")  # must live as long as its functions are used
    from_export = exported.serve(images).numpy()
    saved = Saved(
        keras_bytes=_size(place / "model.keras"),
        exported_bytes=_size(place / "exported"),
        probes=len(expected),
        keras_difference=float(np.abs(from_keras - expected).max()),
        exported_difference=float(np.abs(from_export - expected).max()),
    )
    if max(saved.keras_difference, saved.exported_difference) > 1e-4:
        raise LabError(
            f"What was saved predicts something else than the model: {saved}. "
            "Do not rely on these files; save again, and report it if it stays so."
        )
    return saved


def load(path: Any, replicas: Any = None) -> Any:
    """A saved model: a Keras model from `….keras`, a servable one from an exported folder.

    With `replicas` a Keras model is made under their strategy, so that each holds a copy.
    """
    tf = import_tensorflow()
    import keras

    dropout_layer()  # known to Keras by name, so that a saved model finds it
    place = Path(path)
    if not place.exists():
        raise LabError(
            f"There is nothing at {str(path)!r}. Save a job first: training.save(job, folder)."
        )
    try:
        if place.is_dir():
            return tf.saved_model.load(str(place))
        if replicas is None:
            return keras.models.load_model(place)
        with replicas.strategy().scope():
            return keras.models.load_model(place)
    except (OSError, ValueError) as fault:
        raise LabError(
            f"{str(path)!r} is not a model that can be loaded: {str(fault).splitlines()[0]} "
            "Give a .keras file or a folder written by training.save."
        ) from fault


def _size(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
