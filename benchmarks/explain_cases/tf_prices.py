"""House prices: validation keeps the best weights."""

import argparse

import numpy as np
import tensorflow as tf


def data(n, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 30)).astype(np.float32)
    return x, (x[:, :5] ** 2).sum(1, keepdims=True).astype(np.float32)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=1200)
    ap.add_argument("--check-every", type=int, default=10)
    args = ap.parse_args()
    tf.keras.utils.set_random_seed(0)
    x, y = data(20_000, 0)
    x_val, y_val = data(8_000, 1)
    train = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(4096, seed=0).repeat().batch(64)
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Dense(256, activation="gelu"),
            tf.keras.layers.Dense(256, activation="gelu"),
            tf.keras.layers.Dense(1),
        ]
    )
    opt = tf.keras.optimizers.Adam(1e-3)
    mse = tf.keras.losses.MeanSquaredError()

    @tf.function
    def train_step(features, price):
        with tf.GradientTape() as tape:
            loss = mse(price, model(features, training=True))
        grads = tape.gradient(loss, model.trainable_weights)
        opt.apply(grads, model.trainable_weights)
        return loss

    best, kept = float("inf"), None
    for step, (features, price) in enumerate(train.prefetch(2).take(args.steps), 1):
        loss = train_step(features, price)
        if step % args.check_every == 0:
            error = float(mse(y_val, model.predict(x_val, batch_size=256, verbose=0)))
            if error < best:
                best, kept = error, model.get_weights()
        if step % 200 == 0:
            print(f"step {step} best {best:.4f}", flush=True)
    if kept:
        model.set_weights(kept)
    print(f"loss {float(loss):.4f}")


if __name__ == "__main__":
    main()
