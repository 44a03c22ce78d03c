"""CIFAR-100 with a loop of one's own on N ranks: hvd.DistributedGradientTape.

    horovodrun -np 2 python 60_cifar100_tape.py --updates 200

It needs Horovod 0.28.1 and TensorFlow 2.15 with Keras 2. It comes from a program for CIFAR-100 in
the documentation of a computing platform. "Corrected:" says what that program did.
"""

import argparse
import zlib
from pathlib import Path

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--updates", type=int, default=200)
parser.add_argument("--batch", type=int, default=32, help="images on each rank")
parser.add_argument("--warm-up", type=int, default=50, help="updates")
parser.add_argument("--save", help="a folder for the checkpoint; by default none is written")
args = parser.parse_args()

tf.keras.utils.disable_interactive_logging()
hvd.init()
rank, ranks = hvd.rank(), hvd.size()
gpus = tf.config.list_physical_devices("GPU")
for gpu in gpus:
    tf.config.experimental.set_memory_growth(gpu, True)
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")


def cifar100():
    try:
        return tf.keras.datasets.cifar100.load_data()[0]
    except Exception:  # no network: a hundred patterns under noise, in the shape of CIFAR-100
        if rank == 0:
            print("CIFAR-100 is not here: synthetic images instead.")
        random = np.random.default_rng(0)  # the same on every rank
        labels = random.integers(0, 100, (5_000, 1))
        patterns = random.integers(0, 128, (100, 8, 8, 3)).repeat(4, axis=1).repeat(4, axis=2)
        images = patterns[labels[:, 0]] + random.integers(0, 128, (5_000, 32, 32, 3))
        return images.astype("uint8"), labels


# Corrected: all ranks of a machine wrote the same file. The first one downloads it.
if hvd.local_rank() > 0:
    hvd.allgather_object("the file is there")
images, labels = cifar100()
if hvd.local_rank() == 0:
    hvd.allgather_object("the file is there")

# Corrected: every rank read all images, in another order. Each rank reads its shard.
# Corrected: repeat came before shuffle, which mixes the images of two epochs.
# Corrected: all images were float32, four times the memory. Here only a batch is.
data = tf.data.Dataset.from_tensor_slices((images, labels[:, 0].astype("int32")))
data = data.shard(ranks, rank).shuffle(len(images) // ranks, seed=rank).repeat()
data = data.batch(args.batch).map(lambda x, y: (tf.cast(x, tf.float32) / 255, y))

tf.keras.utils.set_random_seed(rank)
layers = tf.keras.layers
model = tf.keras.Sequential(
    [
        layers.Conv2D(32, 3, activation="relu", input_shape=(32, 32, 3)),
        layers.MaxPooling2D(2),
        layers.Conv2D(64, 3, activation="relu"),
        layers.MaxPooling2D(2),
        layers.Conv2D(64, 3, activation="relu"),
        layers.Flatten(),
        layers.Dense(64, activation="relu"),
        layers.Dense(100),
    ]
)
loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
optimizer = tf.keras.optimizers.Adam(0.001)

# Corrected: the broadcast came after the first update, which had used gradients of different
# weights. Since Keras 2.11 build() makes the optimizer's variables: the broadcast can come first.
optimizer.build(model.trainable_variables)
hvd.broadcast_variables(model.variables, root_rank=0)
hvd.broadcast_variables(optimizer.variables, root_rank=0)


@tf.function
def training_step(x, y, rate):
    with tf.GradientTape() as tape:
        loss = loss_of(y, model(x, training=True))
    tape = hvd.DistributedGradientTape(tape)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.learning_rate.assign(rate)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return hvd.allreduce(loss)  # the mean of all ranks


# Corrected: the rate was N times as large from the first step on. It grows during the warm-up.
first = last = None
for step, (x, y) in enumerate(data.take(args.updates // ranks)):
    progress = min(1.0, (step + 1) / args.warm_up)
    last = training_step(x, y, tf.constant(0.001 * (1 + progress * (ranks - 1))))
    first = last if first is None else first
    if step % 20 == 0 and rank == 0:  # Corrected: local_rank() == 0 printed on every machine
        print(f"step {step}: loss {last:.4f}")

if rank == 0 and args.save:
    # Corrected: save("./checkpoints") wrote ./checkpoints-1.index. The path is a prefix.
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
    print("saved:", Path(checkpoint.save(f"{args.save}/cifar100")).name)
weights = b"".join(one.tobytes() for one in model.get_weights())
checksums = hvd.allgather_object(zlib.crc32(weights))
if rank == 0:
    print(f"{ranks} ranks: the loss fell from {first:.2f} to {last:.2f}")
    print(f"the weights are equal on all ranks: {len(set(checksums)) == 1}")
hvd.shutdown()
