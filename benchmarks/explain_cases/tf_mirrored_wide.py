"""MirroredStrategy on two logical devices; a custom loop."""

import argparse

import numpy as np
import tensorflow as tf


def build(width):
    dense = [tf.keras.layers.Dense(width, activation="relu") for _ in range(2)]
    model = tf.keras.Sequential([tf.keras.layers.Input((256,)), *dense, tf.keras.layers.Dense(10)])
    return model, tf.keras.optimizers.SGD(0.05)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--examples", type=int, default=16384)
    args = ap.parse_args()
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    batch = 512 * strategy.num_replicas_in_sync
    tf.keras.utils.set_random_seed(0)
    x = np.random.default_rng(0).normal(size=(args.examples, 256)).astype("float32")
    data = tf.data.Dataset.from_tensor_slices((x, x[:, :10].argmax(1)))
    data = data.shuffle(args.examples, seed=0).batch(batch, drop_remainder=True).prefetch(2)
    data = strategy.experimental_distribute_dataset(data)
    with strategy.scope():
        model, optimizer = build(768)

    def replica(features, labels):
        with tf.GradientTape() as tape:
            logits = model(features, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.nn.compute_average_loss(losses, global_batch_size=batch)
        grads = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(grads, model.trainable_variables))
        return loss

    @tf.function
    def step(features, labels):
        return strategy.reduce("SUM", strategy.run(replica, (features, labels)), axis=None)

    for epoch in range(args.epochs):
        for features, labels in data:
            loss = step(features, labels)
        print(f"epoch {epoch} loss {float(loss):.4f}", flush=True)


if __name__ == "__main__":
    main()
