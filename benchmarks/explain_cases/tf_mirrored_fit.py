"""Two logical devices, MirroredStrategy, Keras fit."""

import argparse

import numpy as np
import tensorflow as tf

EXAMPLES = 8192


def devices(n):
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * n)
    return [f"CPU:{i}" for i in range(n)]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=6)
    ap.add_argument("--examples", type=int, default=EXAMPLES)
    args = ap.parse_args()
    batch_size = 16
    strategy = tf.distribute.MirroredStrategy(devices(2))
    tf.keras.utils.set_random_seed(0)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(args.examples, 64)).astype("float32")
    y = (x[:, :3].sum(1) > 0).astype("float32")
    data = tf.data.Dataset.from_tensor_slices((x, y)).cache().shuffle(2048).batch(batch_size)
    with strategy.scope():
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Dense(128, activation="relu"),
                tf.keras.layers.Dense(128, activation="relu"),
                tf.keras.layers.Dense(1),
            ]
        )
        model.compile("adam", tf.keras.losses.BinaryCrossentropy(from_logits=True))
    done = model.fit(data.prefetch(2), epochs=args.epochs, verbose=2)
    print(f"loss {done.history['loss'][-1]:.4f}")


if __name__ == "__main__":
    main()
