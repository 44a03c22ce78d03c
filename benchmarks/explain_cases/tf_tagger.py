"""Tagger over sentences of many lengths."""

import argparse

import numpy as np
import tensorflow as tf

BUCKETS = (16, 32, 48)


def sentences(steps):
    rng = np.random.default_rng(7)
    for _ in range(steps):
        longest = int(rng.integers(8, 48))
        width = next(b for b in BUCKETS if b >= longest)
        ids = np.zeros((32, width), np.int32)
        ids[:, :longest] = rng.integers(1, 500, (32, longest))
        yield ids, ids % 5


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=250)
    args = ap.parse_args()
    tf.keras.utils.set_random_seed(0)
    embed = tf.keras.layers.Embedding(500, 64)
    conv = [tf.keras.layers.Conv1D(128, 3, padding="same", activation="relu") for _ in range(3)]
    tagger = tf.keras.Sequential([embed, *conv, tf.keras.layers.Dense(5)])
    tagger.build((None, None))
    opt = tf.keras.optimizers.Adam(1e-3)
    ce = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def update(ids, tags):
        with tf.GradientTape() as tape:
            loss = ce(tags, tagger(ids, training=True))
        gradient = tape.gradient(loss, tagger.trainable_variables)
        opt.apply_gradients(zip(gradient, tagger.trainable_variables))
        return loss

    for step, (ids, tags) in enumerate(sentences(args.steps)):
        loss = update(tf.constant(ids), tf.constant(tags))
        if step % 50 == 0:
            print(f"step {step} loss {float(loss):.4f}", flush=True)


if __name__ == "__main__":
    main()
