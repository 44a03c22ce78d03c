"""Train on images that are stored as bits and unpacked while they are read: `python images.py`."""

import numpy as np
import tensorflow as tf

rng = np.random.default_rng(0)
packed = np.packbits(rng.random((4096, 1024)) < 0.5, axis=1)
labels = rng.integers(0, 10, 4096)


def unpack(number):
    """One image: each bit is a pixel."""
    pixels = []
    for byte in packed[number].tolist():
        pixels += [byte >> bit & 1 for bit in range(7, -1, -1)]
    return np.array(pixels, np.float32), labels[number]


def read(number):
    pixels, label = tf.numpy_function(unpack, [number], (tf.float32, tf.int64))
    return tf.ensure_shape(pixels, (1024,)), tf.ensure_shape(label, ())


images = tf.data.Dataset.range(4096).shuffle(4096, seed=0)
images = images.map(read, num_parallel_calls=tf.data.AUTOTUNE).batch(64)
images = images.prefetch(tf.data.AUTOTUNE)

model = tf.keras.Sequential(
    [
        tf.keras.Input((1024,)),
        tf.keras.layers.Dense(512, activation="relu"),
        tf.keras.layers.Dense(10),
    ]
)
loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile("adam", loss)
model.fit(images, epochs=6, verbose=2)
