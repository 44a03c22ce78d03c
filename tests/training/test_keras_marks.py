"""Keras tells its epochs to whoever watches. Here, where TensorFlow runs with its four replicas."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest
from IPython.core.events import EventManager, available_events

from labkit.telemetry.spans import Cells, keras_callback, listening


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


def test_keras_marks_each_epoch_and_an_interrupted_one_ends_with_the_next_fit(heard, model):
    import keras

    class Impatient(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            raise KeyboardInterrupt

    net, x, y = model
    marks = keras_callback(images=8)
    with pytest.raises(KeyboardInterrupt):
        net.fit(x, y, epochs=3, verbose=0, callbacks=[Impatient(), marks])
    assert names(heard) == [("epoch 1", "begins")]
    net.fit(x, y, epochs=2, verbose=0, callbacks=[marks])
    ended = [(span.name, span.images, span.by) for span in heard if span.end is not None]
    assert ended[1:] == [("epoch 1", 8, "keras"), ("epoch 2", 8, "keras")]
    assert names(heard)[1:3] == [("epoch 1", "ends"), ("epoch 1", "begins")]


def test_the_end_of_a_cell_ends_only_an_epoch_of_its_own_thread(heard, four):
    """A `fit` in a thread of its own goes on while other cells run."""
    shell = SimpleNamespace(user_ns={"In": [""]})
    shell.events = EventManager(shell, available_events)
    cells = Cells(shell, lambda span: None)
    own, of_a_thread = keras_callback(), keras_callback()
    shell.events.trigger("pre_run_cell", SimpleNamespace(raw_cell="model.fit(x, y)"))
    thread = threading.Thread(target=of_a_thread.on_epoch_begin, args=(4,))
    thread.start()
    thread.join()
    own.on_epoch_begin(0)  # and is interrupted
    shell.events.trigger("post_run_cell", SimpleNamespace())
    cells.unfollow()
    assert names(heard) == [("epoch 5", "begins"), ("epoch 1", "begins"), ("epoch 1", "ends")]
