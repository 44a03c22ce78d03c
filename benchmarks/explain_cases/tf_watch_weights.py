"""Keras fit with a callback that follows the layers during training."""

import argparse
import json

import numpy as np
import tensorflow as tf


class LayerWatch(tf.keras.callbacks.Callback):
    def __init__(self, path, every=1):
        super().__init__()
        self.path, self.every = path, every

    def on_train_batch_end(self, batch, logs=None):
        if batch % self.every:
            return
        row = {"batch": batch, **(logs or {})}
        for w in self.model.trainable_weights:
            values = w.numpy()
            counts, _ = np.histogram(values, 50)
            row[w.path] = {"norm": float(np.linalg.norm(values)), "hist": counts.tolist()}
        with open(self.path, "a") as file:
            file.write(json.dumps(row) + "\n")


def get_model():
    model = tf.keras.Sequential(
        [tf.keras.layers.Dense(n, activation="relu") for n in (512, 512, 256)]
        + [tf.keras.layers.Dense(5)]
    )
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=tf.keras.optimizers.SGD(0.05), loss=loss)
    return model


if __name__ == "__main__":
    cli = argparse.ArgumentParser()
    cli.add_argument("--epochs", type=int, default=4)
    cli.add_argument("--samples", type=int, default=6400)
    cli.add_argument("--out", default="layers.jsonl")
    opts = cli.parse_args()
    tf.keras.utils.set_random_seed(3)
    x = np.random.default_rng(3).normal(size=(opts.samples, 200)).astype("float32")
    y = np.abs(x[:, :5]).argmax(1)
    fit = get_model().fit(x, y, 32, opts.epochs, verbose=2, callbacks=[LayerWatch(opts.out)])
    print(f"loss {fit.history['loss'][-1]:.4f}")
