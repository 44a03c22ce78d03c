"""Train with a callback that keeps the weights: `python callbacks.py`."""

import numpy as np
import tensorflow as tf

rng = np.random.default_rng(0)
x = rng.standard_normal((8192, 256)).astype("float32")
y = rng.integers(0, 10, 8192)


class KeepWeights(tf.keras.callbacks.Callback):
    """The weights of the last steps, in case that something goes wrong."""

    def on_train_batch_end(self, batch, logs=None):
        if batch % 4 == 0:
            self.model.save_weights("kept.weights.h5")


model = tf.keras.Sequential(
    [
        tf.keras.Input((256,)),
        tf.keras.layers.Dense(512, activation="relu"),
        tf.keras.layers.Dense(512, activation="relu"),
        tf.keras.layers.Dense(10),
    ]
)
loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile("adam", loss)
model.fit(x, y, batch_size=64, epochs=2, verbose=2, callbacks=[KeepWeights()])
