"""Defects of a model and of data that exist: seen in the objects, not in the program's text.

Nothing is trained. Of a pipeline that does not tell its batch, one element is drawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from labkit.kinds import LabError, count_text
from labkit.training.defects.diagnosis import Finding, Severity
from labkit.training.defects.keras_calls import kind_of_loss

__all__ = ["findings_about"]

_WHERE = {"model": "the model", "data": "the data"}


@dataclass(frozen=True)
class _Seen:
    """What the rules need of some data."""

    dtypes: tuple[str, ...]
    batch: int | None
    one_hot: bool | None


def findings_about(model: Any, data: Any, replicas: Any) -> Iterator[Finding]:
    """What a model, data and the number of replicas show together."""
    kind = from_logits = None
    if model is not None:
        kind, from_logits = _loss(model)
        yield from _activation(model, kind, from_logits)
    if data is None:
        return
    seen = _looked_at(data)
    yield from _double(seen)
    yield from _labels(seen, kind)
    yield from _batch(seen, _count(replicas))


def _loss(model: Any) -> tuple[str | None, bool | None]:
    if not hasattr(model, "layers") or not hasattr(model, "compile"):
        raise LabError(
            f"model={_short(model)} is no Keras model. Pass the model itself, after compile."
        )
    loss = getattr(model, "loss", None)
    if not getattr(model, "compiled", loss is not None) or loss is None:
        raise LabError(
            f"The model {getattr(model, 'name', '')!r} has no loss yet. "
            "Call model.compile(..., loss=...), then diagnose it."
        )
    if isinstance(loss, str):
        return kind_of_loss(loss), False
    config = loss.get_config() if hasattr(loss, "get_config") else {}
    name = type(loss).__name__ if config else getattr(loss, "__name__", type(loss).__name__)
    given = config.get("from_logits") if config else False
    return kind_of_loss(name), given if isinstance(given, bool) else None


def _activation(model: Any, kind: str | None, from_logits: bool | None) -> Iterator[Finding]:
    if kind is None or from_logits is None:
        return
    layer = next((one for one in reversed(model.layers) if not _passes(one)), None)
    activation = getattr(getattr(layer, "activation", None), "__name__", "")
    if type(layer).__name__ == "Softmax":
        activation = "softmax"
    wrote = f"last layer {layer.name!r} with {activation}" if layer is not None else ""
    if activation == "linear" and not from_logits:
        yield _told(
            "loss", "wrong result", "model", wrote,
            "The loss expects probabilities, and the last layer gives logits: the loss means "
            "nothing, and training goes astray.",
            "Compile with a loss object that has from_logits=True.",
        )  # fmt: skip
    if activation in ("softmax", "sigmoid") and from_logits:
        yield _told(
            "loss", "wrong result", "model", wrote,
            "The loss expects logits, and the last layer gives probabilities already: a second "
            "softmax flattens them.",
            "Take the softmax off the last layer, or leave out from_logits=True.",
        )  # fmt: skip


def _passes(layer: Any) -> bool:
    names = ("Dropout", "Flatten", "Reshape", "Identity", "InputLayer")
    return type(layer).__name__ in names


def _looked_at(data: Any) -> _Seen:
    if hasattr(data, "x_train"):
        data = (data.x_train, data.y_train)
    if hasattr(data, "element_spec"):
        return _pipeline(data)
    parts = tuple(data) if isinstance(data, (tuple, list)) else (data,)
    if not parts or not all(hasattr(part, "dtype") and hasattr(part, "shape") for part in parts):
        raise LabError(
            f"data={_short(data)} cannot be looked at. Pass the images, (images, labels), "
            "a tf.data pipeline, or labkit.datasets.mnist()."
        )
    dtypes = tuple(_dtype(part) for part in parts)
    return _Seen(dtypes, None, _one_hot(parts[1]) if len(parts) > 1 else None)


def _pipeline(data: Any) -> _Seen:
    spec = data.element_spec
    parts = tuple(spec) if isinstance(spec, (tuple, list)) else (spec,)
    dtypes = tuple(_dtype(part) for part in parts if hasattr(part, "dtype"))
    element: Any = None
    shapes = [part.shape for part in parts if hasattr(part, "shape")]
    ranked = bool(shapes) and shapes[0].rank is not None and shapes[0].rank > 0
    batch = shapes[0][0] if ranked else None
    if ranked and (batch is None or len(parts) > 1):
        element = next(iter(data.take(1)), None)
    drawn = tuple(element) if isinstance(element, (tuple, list)) else (element,)
    # Without .batch the first axis is an axis of the image.
    labels = drawn[1] if len(drawn) > 1 else None
    batched = labels is None or labels.shape.rank != 0
    if batch is None and drawn[0] is not None:
        batch = int(drawn[0].shape[0])
    one_hot = _one_hot(labels) if labels is not None and labels.shape.rank else None
    if labels is not None and labels.shape.rank == 1 and ranked and labels.shape[0] != batch:
        batched, one_hot = False, True
    return _Seen(dtypes, batch if batched else None, one_hot)


def _dtype(part: Any) -> str:
    return str(getattr(part.dtype, "name", part.dtype))


def _one_hot(labels: Any) -> bool | None:
    """Rows of noughts with a single one, or integers; None for anything else."""
    import numpy as np

    some = np.asarray(labels[:256])
    if some.ndim == 1 or (some.ndim == 2 and some.shape[1] == 1):
        whole = some.size > 0 and bool(np.all(np.equal(np.mod(some, 1), 0)))
        return False if whole else None
    if some.ndim == 2 and bool(np.all((some == 0) | (some == 1)) and np.all(some.sum(1) == 1)):
        return True
    return None


def _double(seen: _Seen) -> Iterator[Finding]:
    if seen.dtypes and seen.dtypes[0] == "float64":
        yield _told(
            "float64", "wrong time", "data", "images of type float64",
            "Eight bytes for each pixel, which are converted to float32 on the way to the model.",
            'Write x.astype("float32") / 255, or keep bytes and scale inside the model.',
        )  # fmt: skip


def _labels(seen: _Seen, kind: str | None) -> Iterator[Finding]:
    if kind == "sparse" and seen.one_hot:
        yield _told(
            "labels", "wrong result", "data", "one-hot labels",
            "The model's sparse loss expects one integer for each image: training stops with an "
            "error.",
            "Leave out to_categorical, or compile with CategoricalCrossentropy.",
        )  # fmt: skip
    if kind == "categorical" and seen.one_hot is False:
        yield _told(
            "labels", "wrong result", "data", "integer labels",
            "The model's loss expects one-hot rows: training stops with an error.",
            "Compile with SparseCategoricalCrossentropy: it takes integers.",
        )  # fmt: skip


def _batch(seen: _Seen, count: int) -> Iterator[Finding]:
    if seen.batch is None or count < 2 or seen.batch % count == 0:
        return
    yield _told(
        "batch", "wrong time", "data",
        f"batches of {count_text(seen.batch)} for {count} replicas",
        "The batch cannot be divided evenly: some replicas get fewer images and wait for the "
        "others.",
        f"Take a multiple of {count}: the batch per replica times strategy.num_replicas_in_sync.",
    )  # fmt: skip


def _count(replicas: Any) -> int:
    if replicas is None:
        return 1
    for name in ("num_replicas_in_sync", "count"):
        number = getattr(replicas, name, None)
        if isinstance(number, int):
            return number
    if isinstance(replicas, int) and not isinstance(replicas, bool) and replicas > 0:
        return replicas
    raise LabError(
        f"replicas={_short(replicas)} is not understood. Pass a number, a strategy, "
        "or labkit.replicas(2)."
    )


def _told(defect: str, severity: Severity, what: str, wrote: str, does: str, mend: str) -> Finding:
    return Finding(defect, severity, (_WHERE[what],), wrote, does, mend)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"a {type(value).__name__}"
