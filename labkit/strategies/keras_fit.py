"""The same training by Keras: the same start, the same batches, its `train_step` or its `fit`."""

from __future__ import annotations

import importlib
from typing import Any

from labkit.hardware.devices import import_tensorflow
from labkit.strategies.cases import BATCH, RATE, SEED, practice_batches
from labkit.training.models import dense

__all__ = ["fitted", "fitted_by_legacy", "stepped"]


def fitted(strategy: Any, dropout: float = 0.0) -> list[Any]:
    """One epoch of Keras 3's fit under a strategy; the weights that it ends with."""
    model = _compiled(strategy, dropout)
    images, labels = practice_batches()
    model.fit(images, labels, batch_size=BATCH, shuffle=False, verbose=0)
    return [variable.numpy() for variable in model.trainable_variables]


def stepped(strategy: Any) -> list[Any]:
    """One epoch of Keras 3's training step in a loop of one's own: goes where `fit` does not."""
    tf = import_tensorflow()
    model = _compiled(strategy)

    @tf.function  # type: ignore[untyped-decorator]
    def step(batch: Any) -> None:
        strategy.run(model.train_step, args=(batch,))

    pipeline = tf.data.Dataset.from_tensor_slices(practice_batches()).batch(BATCH)
    for batch in strategy.experimental_distribute_dataset(pipeline):
        step(batch)
    return [variable.numpy() for variable in model.trainable_variables]


def _compiled(strategy: Any, dropout: float = 0.0) -> Any:
    import_tensorflow()
    import keras

    keras.utils.set_random_seed(SEED)
    with strategy.scope():
        model = _with_dropout(dropout) if dropout else dense(dropout=0.0)
        model.compile(
            optimizer=keras.optimizers.SGD(RATE),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
    return model


def _with_dropout(rate: float) -> Any:
    """The dense model with Keras' own Dropout: labkit's keeps no state, Keras' keeps a variable."""
    from keras import Input, Sequential, layers

    return Sequential(
        [
            Input((28, 28)),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dropout(rate),
            layers.Dense(10),
        ]
    )


def fitted_by_legacy(strategy: Any) -> list[Any]:
    """The same with Keras 2, which lives on as tf_keras."""
    import_tensorflow()
    import keras

    tf_keras: Any = importlib.import_module("tf_keras")  # not among the course's packages
    keras.utils.set_random_seed(SEED)
    start = dense(dropout=0.0).get_weights()  # Keras 2 would draw other numbers from this seed
    with strategy.scope():
        layers = tf_keras.layers
        model = tf_keras.Sequential(
            [
                layers.Flatten(input_shape=(28, 28)),
                layers.Dense(128, activation="relu"),
                layers.Dense(10),
            ]
        )
        model.compile(
            optimizer=tf_keras.optimizers.SGD(RATE),
            loss=tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
    model.set_weights(start)
    images, labels = practice_batches()
    model.fit(images, labels, batch_size=BATCH, shuffle=False, verbose=0)
    return [variable.numpy() for variable in model.trainable_variables]
