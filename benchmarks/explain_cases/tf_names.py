"""Language of a name from its letters; a custom loop with a GRU."""

import argparse

import numpy as np
import tensorflow as tf


class NameModel(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.embed = tf.keras.layers.Embedding(40, 16)
        self.gru = tf.keras.layers.GRU(32)
        self.out = tf.keras.layers.Dense(4)

    def call(self, letters):
        return self.out(self.gru(self.embed(letters)))


def batches(steps, rng):
    for _ in range(steps):
        length = int(rng.integers(5, 60))
        letters = rng.integers(1, 40, (32, length))
        yield tf.constant(letters, tf.int32), tf.constant(letters[:, 0] % 4, tf.int32)


model = NameModel()
optimizer = tf.keras.optimizers.Adam(1e-3)
loss_fn = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@tf.function
def train_step(letters, language):
    with tf.GradientTape() as tape:
        loss = loss_fn(language, model(letters))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=120)
    args = ap.parse_args()
    tf.keras.utils.set_random_seed(0)
    for step, (letters, language) in enumerate(batches(args.steps, np.random.default_rng(2))):
        loss = train_step(letters, language)
        if step % 20 == 0:
            print(f"step {step} loss {float(loss):.4f}", flush=True)
    print(f"loss {float(loss):.4f}")


if __name__ == "__main__":
    main()
