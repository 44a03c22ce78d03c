"""One training on all tasks of a job step, which stops at SIGTERM and goes on when requeued.

    srun --kill-on-bad-exit=1 python 35_under_slurm.py checkpoints

Elsewhere it trains on one device, stops and continues, and compares the weights. It needs
TensorFlow and nothing else. The lecture "On a cluster" reads it line by line.
"""

# --- The program of the lecture begins here.

import os
import signal
import sys
import tempfile
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

GLOBAL_BATCH, STEPS = 64, 1000
keras.config.set_dtype_policy("float64")  # for the comparison at the end; train in float32
asked = []  # signals that have arrived


def workers_of_slurm():
    """One worker for each task of this job step."""
    resolver = tf.distribute.cluster_resolver.SlurmClusterResolver(
        port_base=20_000 + int(os.environ["SLURM_JOB_ID"]) % 10_000,
        auto_set_gpu=False,  # srun --gpus-per-task=1 shows each task its own GPU
        gpus_per_node=8,
        gpus_per_task=1,  # only counted: without them it needs nvidia-smi
    )
    return tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=resolver)


def patterns():
    """Ten patterns under noise, 64 in each batch, the same on every worker."""
    random = np.random.default_rng(0)
    y = random.integers(0, 10, 6_400)
    x = 0.3 * random.random((10, 784))[y] + 0.7 * random.random((6_400, 784))
    return tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(GLOBAL_BATCH)


def make_step(strategy, model, optimizer):
    """One step of all workers; it also adds up how many of them were asked to stop."""

    def step(images, labels, stop):
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.nn.compute_average_loss(losses, global_batch_size=GLOBAL_BATCH)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss, stop

    @tf.function
    def train_step(images, labels, stop):
        values = strategy.run(step, args=(images, labels, stop))
        return [strategy.reduce("SUM", value, axis=None) for value in values]

    return train_step


def train(strategy, index, folder):
    """Train STEPS steps, from the newest checkpoint, or until a signal; the model."""
    with strategy.scope():
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((784,)), keras.layers.Dense(10)])
        optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
        optimizer.build(model.trainable_variables)
        done = tf.Variable(0, dtype=tf.int64)
        checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, done=done)
    checkpoint.restore(tf.train.latest_checkpoint(folder))
    print(f"worker {index}: begins after step {done.numpy()}", flush=True)
    train_step = make_step(strategy, model, optimizer)
    left = patterns().skip(int(done.numpy())).take(STEPS - int(done.numpy()))
    for images, labels in strategy.experimental_distribute_dataset(left):
        loss, stop = train_step(images, labels, tf.constant(len(asked)))
        done.assign_add(1)
        if index == 0 and (stop > 0 or done.numpy() % 100 == 0):
            checkpoint.save(f"{folder}/step")
        if stop > 0:  # on every worker after the same step
            break
    print(f"worker {index}: ends after step {done.numpy()}, loss {loss:.4f}", flush=True)
    if index == 0 and done.numpy() == STEPS:
        Path(folder, "finished").touch()
    return model


def main():
    """A task of Slurm; elsewhere one device, which is asked to stop once, and compared."""
    under_slurm = "SLURM_STEP_ID" in os.environ
    strategy = workers_of_slurm() if under_slurm else tf.distribute.get_strategy()
    # After the strategy, because TensorFlow's workers set a handler of their own.
    signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    if under_slurm:
        train(strategy, int(os.environ["SLURM_PROCID"]), sys.argv[1])
        return

    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as empty:
        os.kill(os.getpid(), signal.SIGTERM)
        train(strategy, 0, folder)
        asked.clear()
        stopped = train(strategy, 0, folder)
        whole = train(strategy, 0, empty)
    pairs = zip(stopped.get_weights(), whole.get_weights())
    same = all(np.allclose(a, b, rtol=0, atol=1e-9) for a, b in pairs)
    print("stopped and continued, the same weights:", same)


if __name__ == "__main__":
    main()
