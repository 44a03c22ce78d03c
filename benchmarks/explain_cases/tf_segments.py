"""Subclassed Keras model with its own train_step."""

import argparse

import keras
import numpy as np
import tensorflow as tf


class Segmenter(keras.Model):
    def __init__(self):
        super().__init__()
        conv = keras.layers.Conv1D
        self.stack = [conv(24, 5, padding="same", activation="relu") for _ in range(6)]
        self.last = conv(3, 1)

    def call(self, x):
        for layer in self.stack:
            x = layer(x)
        return self.last(x)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        grads = tape.gradient(loss, self.trainable_variables)
        grads = [tf.clip_by_norm(g, 1.0) for g in grads]
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
        return {"ce": loss}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--signals", type=int, default=3200)
    a = p.parse_args()
    keras.utils.set_random_seed(0)
    x = np.random.default_rng(0).normal(size=(a.signals, 48, 1)).astype("float32")
    y = np.digitize(x[..., 0], [-0.5, 0.5])
    model = Segmenter()
    model.compile(
        optimizer=keras.optimizers.Adam(1e-3),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        run_eagerly=True,
    )
    out = model.fit(x, y, batch_size=32, epochs=a.epochs, verbose=2, shuffle=False)
    print(f"loss {out.history['ce'][-1]:.4f}")


if __name__ == "__main__":
    main()
