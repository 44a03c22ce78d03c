"""One training on two workers: tf.distribute.MultiWorkerMirroredStrategy with a custom loop.

    python 32_multi_worker.py

starts two workers of itself on this machine. With TF_CONFIG in its environment, it is one worker.
It needs TensorFlow and nothing else. The lecture "Several workers" reads it line by line.
"""

# --- The program of the lecture begins here.

import functools
import json
import os
import socket
import subprocess
import sys
import tempfile

import keras
import numpy as np
import tensorflow as tf

GLOBAL_BATCH = 64
keras.config.set_dtype_policy("float64")  # for the comparison at the end; train in float32


@functools.cache
def digits():
    """Images and labels to train on, then images and labels to test."""
    try:
        (x, y), _ = keras.datasets.mnist.load_data()
    except Exception as problem:  # no network: ten patterns under noise, in the shape of MNIST
        if "TF_CONFIG" not in os.environ:
            print(f"MNIST is not here ({problem}): synthetic images instead.")
        random = np.random.default_rng(0)
        y = random.integers(0, 10, 8_400)
        noise = random.integers(0, 256, (8_400, 28, 28))
        x = 0.3 * random.integers(0, 256, (10, 28, 28))[y] + 0.7 * noise
    x, y = x[:8_400].astype("float32") / 255, y[:8_400].astype("int32")
    return x[:6_400], y[:6_400], x[6_400:], y[6_400:]


def batches_of_epoch(strategy, epoch, x, y):
    """Global batches in the order of this epoch; each worker gets its part of each."""
    options = tf.data.Options()
    policy = tf.data.experimental.AutoShardPolicy.DATA
    options.experimental_distribute.auto_shard_policy = policy

    batches = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x), seed=epoch)
    batches = batches.batch(GLOBAL_BATCH, drop_remainder=True).with_options(options)
    return strategy.experimental_distribute_dataset(batches)


def make_variables(strategy):
    """The model, its optimizer and the number of the epoch, with a copy on every worker."""
    with strategy.scope():
        keras.utils.set_random_seed(1)
        layers = [
            keras.Input((28, 28)),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10),
        ]
        model, optimizer = keras.Sequential(layers), keras.optimizers.SGD(0.1)
        epoch = tf.Variable(0)
        checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, epoch=epoch)
    return model, optimizer, epoch, checkpoint


def make_train_step(strategy, model, optimizer):
    """One step of all workers together."""

    def step(images, labels):
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.nn.compute_average_loss(losses, global_batch_size=GLOBAL_BATCH)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    @tf.function
    def train_step(images, labels):
        losses = strategy.run(step, args=(images, labels))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    return train_step


def train(strategy, index, folder, epochs):
    """Train up to this epoch, from the last checkpoint in the folder; the model."""
    x, y, x_test, y_test = digits()
    model, optimizer, epoch, checkpoint = make_variables(strategy)
    train_step = make_train_step(strategy, model, optimizer)

    if path := tf.train.latest_checkpoint(folder):  # every worker reads it
        checkpoint.restore(path)
        print(f"worker {index}: continues after epoch {epoch.numpy()}", flush=True)
    while epoch.numpy() < epochs:
        batches = batches_of_epoch(strategy, int(epoch.numpy()), x, y)
        loss = np.mean([float(train_step(images, labels)) for images, labels in batches])
        right = np.mean(np.argmax(model(x_test), axis=1) == y_test)
        epoch.assign_add(1)
        text = f"epoch {epoch.numpy()}: loss {loss:.4f}, accuracy {100 * right:.1f} %"
        print(f"worker {index}: {text}", flush=True)
        if index == 0:  # the chief writes it
            checkpoint.save(f"{folder}/epoch")
    return model


def start_workers(count, folder, epochs):
    """Start this file once for each worker, each with its own TF_CONFIG, and wait for all."""
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{server.getsockname()[1]}" for server in servers]
    for server in servers:
        server.close()  # the port was free: the worker listens there next

    workers = []
    for index in range(count):
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        environment = {**os.environ, "TF_CONFIG": json.dumps(config)}
        environment["no_grpc_proxy"] = "127.0.0.1"  # this machine is not behind a proxy
        environment["CUDA_VISIBLE_DEVICES"] = ""  # NCCL refuses two workers on one GPU
        command = [sys.executable, __file__, folder, str(epochs)]
        workers.append(subprocess.Popen(command, env=environment))
    try:
        if any(worker.wait(timeout=600) for worker in workers):
            raise SystemExit("A worker failed; its message is above.")
    finally:
        for worker in workers:
            worker.kill()  # does nothing to a worker that has ended


def main():
    """One worker, where TF_CONFIG says which; otherwise two of them, and the serial program."""
    if "TF_CONFIG" in os.environ:
        folder, epochs = sys.argv[1:]
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        train(strategy, strategy.cluster_resolver.task_id, folder, int(epochs))
        return
    one_device = tf.distribute.get_strategy()  # without a scope: the strategy of one device
    digits()  # downloads the images before the workers ask for them
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as empty:
        start_workers(2, folder, epochs=1)
        start_workers(2, folder, epochs=2)
        of_workers = train(one_device, 0, folder, epochs=2).get_weights()
        serial = train(one_device, 0, empty, epochs=2).get_weights()
    same = all(np.allclose(a, b, rtol=0, atol=1e-5) for a, b in zip(of_workers, serial))
    print("the weights are those of the serial program:", same)


if __name__ == "__main__":
    main()
