"""The models of the course: one computes little per byte that it exchanges, the other much."""

from __future__ import annotations

from functools import cache
from typing import Any

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
    """Keras' Dropout, but drawn anew on each replica.

    Keras keeps its random state in a variable that all replicas share: under a strategy they drop
    the same units, and wait for one another to do so.
    """
    tf = import_tensorflow()
    import keras

    @keras.saving.register_keras_serializable("labkit")
    class Dropout(keras.layers.Dropout):  # type: ignore[misc]
        def call(self, inputs: Any, training: bool = False) -> Any:
            if not (training and self.rate):
                return inputs
            # floor(u + keep) is 1 with probability keep: two operations where a choice takes five.
            shape, keep = tf.shape(inputs), 1 - self.rate
            return inputs * (tf.floor(tf.random.uniform(shape) + keep) * (1 / keep))

    return Dropout


MODELS = {"dense": dense, "convolutional": convolutional}


def build(model: Any, shape: tuple[int, ...], classes: int, dropout: float) -> Any:
    """A fresh Keras model from one of the course's names, or from the student's own function.

    A student's function takes no arguments and returns a built Keras model that gives logits.
    """
    if isinstance(model, str):
        if model not in MODELS:
            raise LabError(
                f"There is no model called {model!r}. Take {' or '.join(map(repr, MODELS))}, "
                "or pass a function that returns a Keras model."
            )
        return MODELS[model](shape, classes, dropout)
    if not callable(model) or hasattr(model, "trainable_variables"):
        raise LabError(
            "Pass a function that makes the model, not a model: it must be made again inside "
            "the strategy's scope. For example model=lambda: keras.Sequential([...])."
        )
    made = model()
    if not hasattr(made, "trainable_variables") or not getattr(made, "built", False):
        raise LabError(
            f"The function {getattr(model, '__name__', model)!r} must return a built Keras model; "
            "begin it with keras.Input(shape=...)."
        )
    expected, given = (None, *shape), tuple(made.input_shape)
    if given != expected:
        raise LabError(f"The model takes inputs of shape {given}; this data has shape {expected}.")
    if tuple(made.output_shape) != (None, classes):
        raise LabError(
            f"The model gives outputs of shape {made.output_shape}; this data needs one number for "
            f"each of {classes} classes. End it with layers.Dense({classes})."
        )
    last = getattr(getattr(made.layers[-1], "activation", None), "__name__", "linear")
    if last in ("softmax", "sigmoid"):
        raise LabError(
            f"The model ends in {last}, and the training step's loss expects logits. "
            "Leave the activation of the last layer out."
        )
    if made.losses:
        raise LabError(
            "The model has regularizers, and the course's training step does not add them to its "
            "loss. Leave them out."
        )
    return made
