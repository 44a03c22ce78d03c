"""The models of the course: one computes little for each byte of its gradients, the other much."""

from __future__ import annotations

from typing import Any

from labkit.hardware.devices import import_tensorflow

__all__ = ["MODELS", "convolutional", "dense", "separate_dropout"]


def dense(shape: tuple[int, ...] = (28, 28), classes: int = 10, dropout: float = 0.2) -> Any:
    """Flatten, Dense 128, Dropout, Dense: 101,770 parameters on MNIST, and hardly any work."""
    import_tensorflow()
    from keras import Input, Sequential, layers

    return Sequential(
        [
            Input(shape),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dropout(dropout),
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
            layers.Dropout(dropout),
            layers.Dense(classes),
        ],
        name="convolutional",
    )


MODELS = {"dense": dense, "convolutional": convolutional}


def separate_dropout(model: Any, strategy: Any, worker: int) -> None:
    """Give each replica random numbers of its own.

    Keras keeps the state of its random numbers in a variable of which every replica has an equal
    copy: all replicas would drop the same units.
    """
    for layer in model.layers:
        if generator := getattr(layer, "seed_generator", None):
            copies = strategy.experimental_local_results(generator.state.value)
            for number, state in enumerate(copies, worker * len(copies)):
                state.assign_add([number, 0])
