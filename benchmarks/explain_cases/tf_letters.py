"""Letters: Keras fit with shuffling, validation and a checkpoint of the best epoch."""

import argparse

import numpy as np
import tensorflow as tf
from tensorflow.keras import layers


def letters(n, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 26, n)
    x = rng.normal(size=(n, 28, 28, 1)).astype("float32")
    x[np.arange(n), y, :, 0] += 2
    return tf.data.Dataset.from_tensor_slices((x, y))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--images", type=int, default=6000)
    args = ap.parse_args()
    tf.keras.utils.set_random_seed(0)
    train = (
        letters(args.images, 0).cache().shuffle(args.images).batch(64).prefetch(tf.data.AUTOTUNE)
    )
    val = letters(512, 1).batch(256).cache()
    model = tf.keras.Sequential(
        [
            layers.Input((28, 28, 1)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(32, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(26),
        ]
    )
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"])
    keep = tf.keras.callbacks.ModelCheckpoint("letters.keras", save_best_only=True)
    model.fit(train, validation_data=val, epochs=args.epochs, callbacks=[keep], verbose=2)


if __name__ == "__main__":
    main()
