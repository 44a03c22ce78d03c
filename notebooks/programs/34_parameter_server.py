"""One training with a parameter server: tf.distribute.ParameterServerStrategy, asynchronous.

    python 34_parameter_server.py

starts a chief, two workers and a parameter server, all of this file and on this machine. With
TF_CONFIG in its environment, it is one of them. It needs TensorFlow and nothing else. The lecture
"Parameter servers and failures" reads it line by line.
"""

# --- The program of the lecture begins here.

import functools
import json
import os
import socket
import subprocess
import sys

import keras
import numpy as np
import tensorflow as tf

TASKS = [("chief", 0), ("worker", 0), ("worker", 1), ("ps", 0)]
BATCH, STEPS = 64, int(sys.argv[1]) if sys.argv[1:] else 400


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
    x, y = x[:8_400].astype("uint8"), y[:8_400].astype("int32")
    return x[:6_400], y[:6_400], x[6_400:], y[6_400:]


def serve(resolver):
    """What a worker and a parameter server do: they wait for the chief, and never return."""
    threads = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=len(TASKS) + 1)
    server = tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id,
        protocol="grpc", config=threads,
    )  # fmt: skip
    server.join()


def dataset_of_a_worker():
    """Batches without an end, in another order on every worker."""
    x, y, _, _ = digits()
    batches = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x)).repeat().batch(BATCH)
    return batches.map(lambda images, labels: (tf.cast(images, tf.float32) / 255, labels))


def make_variables(strategy):
    """The model and a counter of updates, on the parameter server."""
    with strategy.scope():
        keras.utils.set_random_seed(1)
        layers = [
            keras.Input((28, 28)),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10),
        ]
        model, optimizer = keras.Sequential(layers), keras.optimizers.SGD(0.05)
        optimizer.build(model.trainable_variables)
        updates = tf.Variable(0, dtype=tf.int64)
    return model, optimizer, updates


def make_step(strategy, model, optimizer, updates):
    """One step of one worker: fetch the weights, compute the gradient, send it."""

    def replica_step(images, labels):
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    @tf.function
    def step(batches):
        loss = strategy.run(replica_step, args=next(batches))
        updates.assign_add(1)
        return loss

    return step


def lead(resolver):
    """What the chief does: it makes the variables, schedules the steps and tests the model."""
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    model, optimizer, updates = make_variables(strategy)
    step = make_step(strategy, model, optimizer, updates)
    batches = iter(coordinator.create_per_worker_dataset(dataset_of_a_worker))

    losses = [coordinator.schedule(step, args=(batches,)) for _ in range(STEPS)]
    print(f"{STEPS} steps are scheduled, {updates.numpy()} updates are made", flush=True)
    coordinator.join()
    first, last = (np.mean([loss.fetch() for loss in some]) for some in (losses[:20], losses[-20:]))

    _, _, x_test, y_test = digits()
    right = np.mean(np.argmax(model(x_test.astype("float32") / 255), axis=1) == y_test)
    print(f"loss {first:.4f} at first, {last:.4f} at last, accuracy {100 * right:.1f} %")
    print("after join, as many updates as scheduled steps:", updates.numpy() == STEPS)


def start_all():
    """Start this file once for each task, wait for the chief, and end the others."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in TASKS]
    cluster = {}
    for (role, _), server in zip(TASKS, sockets):
        cluster.setdefault(role, []).append(f"127.0.0.1:{server.getsockname()[1]}")
        server.close()  # the port was free: the task listens there next

    processes = []
    for role, index in TASKS:
        config = {"cluster": cluster, "task": {"type": role, "index": index}}
        environment = {**os.environ, "TF_CONFIG": json.dumps(config)}
        environment["no_grpc_proxy"] = "127.0.0.1"  # this machine is not behind a proxy
        environment["CUDA_VISIBLE_DEVICES"] = ""  # four tasks would share each GPU
        command = [sys.executable, *sys.argv]
        processes.append(subprocess.Popen(command, env=environment))
    try:
        if processes[0].wait(timeout=600):
            raise SystemExit("The chief failed; its message is above.")
    finally:
        for process in processes:
            process.kill()  # workers and parameter servers do not end by themselves


def main():
    """One task, where TF_CONFIG says which; otherwise all of them."""
    if "TF_CONFIG" not in os.environ:
        digits()  # downloads the images before the tasks ask for them
        return start_all()
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type == "chief":
        return lead(resolver)
    return serve(resolver)


if __name__ == "__main__":
    main()
