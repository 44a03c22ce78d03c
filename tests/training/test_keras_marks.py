"""Each epoch of a Keras training becomes a span."""

import numpy as np
import pytest

from labkit.telemetry.spans import keras_callback, listening


def test_keras_marks_each_epoch_and_leaves_none_open_after_an_interrupt(four):
    import keras

    class Impatient(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            raise KeyboardInterrupt

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    data, marks, heard = (np.zeros((8, 2)), np.zeros((8, 1))), keras_callback(images=8), []
    with listening(heard.append):
        model.fit(*data, epochs=2, verbose=0, callbacks=[marks])
        with pytest.raises(KeyboardInterrupt):
            model.fit(*data, verbose=0, callbacks=[Impatient(), marks])
        model.fit(*data, verbose=0, callbacks=[marks])
    ended = [(span.name, span.images) for span in heard if span.end is not None]
    # The one that was interrupted has ended with an unknown number of images.
    assert ended == [("epoch 1", 8), ("epoch 2", 8), ("epoch 1", None), ("epoch 1", 8)]
