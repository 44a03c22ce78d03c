"""The models of the course: one computes little for each byte of its gradients, the other much."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from labkit.arguments import number, one_of
from labkit.hardware.devices import import_tensorflow
from labkit.kinds import LabError

__all__ = ["build", "convolutional", "dense", "dropout_layer"]


def dense(shape: tuple[int, ...] = (28, 28), classes: int = 10, dropout: float = 0.2) -> Any:
    """Flatten, Dense 128, Dropout, Dense: 101,770 parameters on MNIST, and hardly any work."""
    import_tensorflow()
    from keras import Input, Sequential, layers

    return Sequential(
        [
            Input(shape),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            dropout_layer()(dropout),
            layers.Dense(classes),
        ],
        name="dense",
    )


def convolutional(
    shape: tuple[int, ...] = (28, 28), classes: int = 10, dropout: float = 0.2
) -> Any:
    """Two convolutions and a small head: an eighth of the parameters, six times the work."""
    import_tensorflow()
    from keras import Input, Sequential, layers

    image = shape if len(shape) == 3 else (*shape, 1)
    return Sequential(
        [
            Input(shape),
            layers.Reshape(image),
            layers.Conv2D(16, 3, activation="relu"),
            layers.MaxPooling2D(2),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            dropout_layer()(dropout),
            layers.Dense(classes),
        ],
        name="convolutional",
    )


@cache
def dropout_layer() -> Any:
    """Keras' Dropout, with random numbers of its own on each replica.

    Keras keeps the state of its random numbers in a variable of which every replica has an equal
    copy: all replicas drop the same units.
    """
    tf = import_tensorflow()
    import keras

    @keras.saving.register_keras_serializable("labkit")
    class Dropout(keras.layers.Dropout):  # type: ignore[misc]
        def call(self, inputs: Any, training: bool = False) -> Any:
            if not (training and self.rate):
                return inputs
            # floor(u + keep) is 1 with probability keep: a tenth of a step faster than Keras'.
            shape, keep = tf.shape(inputs), 1 - self.rate
            return inputs * (tf.floor(tf.random.uniform(shape) + keep) * (1 / keep))

    return Dropout


MODELS = {"dense": dense, "convolutional": convolutional}
DROPOUT = 0.2


def build(model: Any, shape: tuple[int, ...], classes: int, dropout: float | None) -> Any:
    """A fresh Keras model: one of the course's by its name, or what a student's function returns.

    A student's function takes no arguments and returns a Keras model that gives logits.
    """
    if isinstance(model, str):
        share = number("dropout", DROPOUT if dropout is None else dropout, at_least=0, below=1)
        return MODELS[one_of("model", model, MODELS)](shape, classes, share)
    if not callable(model) or hasattr(model, "trainable_variables"):
        raise LabError(
            "model must be a name or a function that makes a model, not a model: it is made again "
            "inside the strategy's scope. For example model=lambda: keras.Sequential([...])."
        )
    if dropout is not None:
        raise LabError(
            f"dropout={dropout!r} is for the course's models. Leave it out, and put a "
            "keras.layers.Dropout into your own model."
        )
    made = model()
    _check(made, (None, *shape), classes)
    for layer in _layers_of(made):
        if hasattr(layer, "seed_generator"):
            layer.seed_generator.next = _seed_on_this_replica
    return made


def _check(made: Any, inputs: tuple[int | None, ...], classes: int) -> None:
    """Refuse a model that the training step cannot train."""
    given, outputs = getattr(made, "input_shape", None), getattr(made, "output_shape", None)
    if not hasattr(made, "trainable_variables") or given is None or outputs is None:
        raise LabError(
            "The function must return a Sequential or functional Keras model that begins with "
            f"keras.Input(shape=...), got {type(made).__name__}. A subclass of keras.Model has no "
            "shapes that can be checked: wrap its layers in keras.Sequential([...])."
        )
    if tuple(given) != inputs:
        raise LabError(f"The model takes inputs of shape {given}; this data has shape {inputs}.")
    if tuple(outputs) != (None, classes):
        raise LabError(
            f"The model gives outputs of shape {outputs}; this data has {classes} classes. "
            f"End the model with layers.Dense({classes})."
        )
    activation = getattr(getattr(made.layers[-1], "activation", None), "__name__", "linear")
    if activation in ("softmax", "sigmoid"):
        raise LabError(
            f"The model ends in {activation}, and the training step's loss expects logits. "
            "Leave the activation of the last layer out."
        )
    if made.losses:
        raise LabError(
            "The model has regularizers, and the course's training step does not add them to its "
            "loss. Leave them out."
        )


def _layers_of(model: Any) -> Iterator[Any]:
    for layer in model.layers:
        yield layer
        yield from _layers_of(layer) if hasattr(layer, "layers") else ()


def _seed_on_this_replica(ordered: bool = True) -> Any:
    """A random seed for one call of a layer, drawn on the replica (see `dropout_layer`)."""
    tf = import_tensorflow()
    return tf.random.uniform((2,), 0, 2**31 - 1, tf.int32)
