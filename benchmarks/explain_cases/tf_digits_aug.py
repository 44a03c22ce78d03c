"""Digits with a random crop; Keras fit on a tf.data pipeline."""

import argparse

import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--images", type=int, default=6000)
args = parser.parse_args()

tf.keras.utils.set_random_seed(0)
images = np.random.default_rng(0).random((args.images, 36, 36, 1), dtype=np.float32)
labels = np.arange(args.images) % 10


def crop(image, label):
    y, x = int(label) % 5, int(label) % 7
    window = image.numpy()[y : y + 28, x : x + 28]
    return ((window - window.mean()) / (window.std() + 1e-6)).astype(np.float32)


def load(image, label):
    image = tf.py_function(crop, [image, label], tf.float32)
    return tf.ensure_shape(image, (28, 28, 1)), label


dataset = (
    tf.data.Dataset.from_tensor_slices((images, labels))
    .shuffle(1024, seed=1)
    .map(load, num_parallel_calls=2)
    .batch(64)
    .prefetch(2)
)
model = tf.keras.Sequential(
    [
        tf.keras.layers.Input((28, 28, 1)),
        tf.keras.layers.Conv2D(8, 3, strides=2, activation="relu"),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(10),
    ]
)
model.compile("sgd", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
history = model.fit(dataset, epochs=args.epochs, verbose=2)
print(f"loss {history.history['loss'][-1]:.4f}")
