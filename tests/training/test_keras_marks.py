"""Keras tells its epochs to whoever watches. Here, where TensorFlow runs with its four replicas."""

import numpy as np
import pytest

from labkit.telemetry.spans import keras_callback, listening


@pytest.fixture
def heard():
    told = []
    with listening(told.append):
        yield told


def names(told):
    return [(span.name, "begins" if span.end is None else "ends") for span in told]


@pytest.fixture(scope="module")
def model(four):
    import keras

    made = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    return made, np.zeros((8, 2)), np.zeros((8, 1))


def test_keras_marks_each_epoch(heard, model):
    net, x, y = model
    net.fit(x, y, epochs=2, verbose=0, callbacks=[keras_callback(images=8)])
    ended = [span for span in heard if span.end is not None]
    assert [(span.name, span.images) for span in ended] == [("epoch 1", 8), ("epoch 2", 8)]


def test_a_fit_that_was_interrupted_leaves_no_span_open_for_the_next(heard, model):
    import keras

    class Impatient(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            raise KeyboardInterrupt

    net, x, y = model
    marks = keras_callback(images=8)
    with pytest.raises(KeyboardInterrupt):
        net.fit(x, y, epochs=3, verbose=0, callbacks=[Impatient(), marks])
    assert names(heard) == [("epoch 1", "begins")]
    net.fit(x, y, epochs=1, verbose=0, callbacks=[marks])
    assert names(heard)[1:] == [("epoch 1", "ends"), ("epoch 1", "begins"), ("epoch 1", "ends")]
