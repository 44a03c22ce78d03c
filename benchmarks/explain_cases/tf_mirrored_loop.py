"""Custom training loop under MirroredStrategy with two logical devices."""

import argparse

import numpy as np
import tensorflow as tf

GLOBAL_BATCH = 256


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=8)
    ap.add_argument("--examples", type=int, default=16384)
    args = ap.parse_args()
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    tf.keras.utils.set_random_seed(0)
    x = np.random.default_rng(0).normal(size=(args.examples, 100)).astype("float32")
    y = x[:, :10].argmax(1)
    data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(4096, seed=0)
    data = strategy.experimental_distribute_dataset(data.batch(GLOBAL_BATCH, drop_remainder=True))
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(512, "relu"), tf.keras.layers.Dense(10)])
        model.build((None, 100))
        optimizer = tf.keras.optimizers.SGD(0.05)
        loss_object = tf.keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction=None
        )

    def replica_step(features, labels):
        with tf.GradientTape() as tape:
            per_example = loss_object(labels, model(features, training=True))
            loss = tf.reduce_mean(per_example)
        grads = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(grads, model.trainable_variables))
        return loss

    @tf.function
    def train_step(features, labels):
        losses = strategy.run(replica_step, args=(features, labels))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    for epoch in range(args.epochs):
        for features, labels in data:
            loss = train_step(features, labels)
        print(f"epoch {epoch} loss {float(loss):.4f}", flush=True)


if __name__ == "__main__":
    main()
