"""MNIST with Keras' fit on N ranks: hvd.DistributedOptimizer and the callbacks of Horovod.

    horovodrun -np 2 python 60_mnist_keras.py --epochs 3

It needs Horovod 0.28.1 and TensorFlow 2.15 with Keras 2. It comes from a tutorial's program, which
comes from Horovod's examples. "Corrected:" says what the tutorial's program did.
"""

import argparse
import zlib

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf
from horovod.tensorflow.functions import allgather_object

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batch", type=int, default=128, help="images on each rank")
parser.add_argument("--images", type=int, default=60_000)
parser.add_argument("--save", help="a folder for checkpoints; by default none is written")
args = parser.parse_args()

tf.get_logger().setLevel("ERROR")
tf.keras.utils.disable_interactive_logging()
hvd.init()
rank, ranks = hvd.rank(), hvd.size()
gpus = tf.config.list_physical_devices("GPU")
for gpu in gpus:
    tf.config.experimental.set_memory_growth(gpu, True)
if gpus:  # local_rank counts the ranks of this machine, as its GPUs are counted
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")


def mnist():
    try:
        return tf.keras.datasets.mnist.load_data()
    except Exception:  # no network: ten patterns under noise, in the shape of MNIST
        if rank == 0:
            print("MNIST is not here: synthetic images instead.")
        random = np.random.default_rng(0)  # the same on every rank
        labels = random.integers(0, 10, 12_000)
        patterns = 0.3 * random.integers(0, 256, (10, 28, 28))
        images = patterns[labels] + 0.7 * random.integers(0, 256, (12_000, 28, 28))
        return (images[:10_000], labels[:10_000]), (images[10_000:], labels[10_000:])


# Corrected: all ranks of a machine wrote the same file. The first one downloads it.
if hvd.local_rank() > 0:
    allgather_object("the file is there")
(x, y), (x_test, y_test) = mnist()
if hvd.local_rank() == 0:
    allgather_object("the file is there")
x, y = (x[: args.images] / 255).astype("float32"), y[: args.images].astype("int32")
x_test, y_test = (x_test / 255).astype("float32"), y_test.astype("int32")

# Corrected: every rank read all images. Each rank reads its shard, and all do as many steps.
steps = len(x) // ranks // args.batch
train = tf.data.Dataset.from_tensor_slices((x, y)).shard(ranks, rank)
train = train.shuffle(len(x) // ranks, seed=rank).batch(args.batch, drop_remainder=True)
train = train.take(steps).prefetch(tf.data.AUTOTUNE)
test = tf.data.Dataset.from_tensor_slices((x_test, y_test)).shard(ranks, rank).batch(args.batch)

# Corrected: the weights began different on each rank. The callback broadcasts rank 0's weights only
# after the first update, in which rank 0 has used the gradients of other weights.
tf.keras.utils.set_random_seed(1)
model = tf.keras.Sequential(
    [
        tf.keras.layers.Flatten(input_shape=(28, 28)),
        tf.keras.layers.Dense(128, activation="relu"),
        tf.keras.layers.Dense(10),
    ]
)
rate = 0.001 * ranks
model.compile(
    optimizer=hvd.DistributedOptimizer(tf.keras.optimizers.Adam(rate)),  # before compile
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),  # the model gives logits
    metrics=["accuracy"],
    # Corrected: no experimental_run_tf_function=False, which TensorFlow ignores since 2.2.
)
callbacks = [
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    # Corrected: each rank reported the metrics of its own images.
    hvd.callbacks.MetricAverageCallback(),
    # Corrected: the rate was N times as large from the first step on.
    hvd.callbacks.LearningRateWarmupCallback(
        initial_lr=rate, warmup_epochs=1, steps_per_epoch=steps
    ),
]
if rank == 0 and args.save:  # not local_rank: one file, not one from each machine
    path = args.save + "/{epoch}.weights.h5"
    callbacks.append(tf.keras.callbacks.ModelCheckpoint(path, save_weights_only=True))

history = model.fit(train, epochs=args.epochs, callbacks=callbacks, validation_data=test, verbose=0)
if rank == 0:
    print(f"{ranks} ranks, {steps} steps per epoch on each, {steps * args.epochs} updates")
    for epoch in range(args.epochs):
        loss, accuracy = history.history["loss"][epoch], history.history["val_accuracy"][epoch]
        print(f"epoch {epoch + 1}: loss {loss:.4f}, accuracy {accuracy:.1%}")
weights = b"".join(one.tobytes() for one in model.get_weights())
checksums = allgather_object(zlib.crc32(weights))  # every rank calls it
if rank == 0:
    print(f"the weights are equal on all ranks: {len(set(checksums)) == 1}")
hvd.shutdown()
