"""Training steps on random images: how many images per second do N ranks train?

    horovodrun -np 4 python 60_synthetic_benchmark.py --model ResNet50 --batch 32

It needs Horovod 0.28.1 and TensorFlow 2.15 with Keras 2. It comes from Horovod's example
tensorflow2_synthetic_benchmark.py. "Corrected:" says what that program does.
"""

import argparse
import time

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="small", help="small, or a name in tf.keras.applications")
parser.add_argument("--batch", type=int, default=32, help="images on each rank")
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--steps", type=int, default=10, help="in a round")
args = parser.parse_args()

hvd.init()
rank, ranks = hvd.rank(), hvd.size()
gpus = tf.config.list_physical_devices("GPU")
for gpu in gpus:
    tf.config.experimental.set_memory_growth(gpu, True)
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
else:  # ranks that share a CPU: one thread each, or they take the cores from one another
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)

layers = tf.keras.layers
if args.model == "small":
    pixels, classes = 32, 10
    model = tf.keras.Sequential(
        [
            layers.Conv2D(32, 3, activation="relu", input_shape=(pixels, pixels, 3)),
            layers.MaxPooling2D(2),
            layers.Conv2D(64, 3, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(classes),
        ]
    )
else:
    pixels, classes = 224, 1000
    model = getattr(tf.keras.applications, args.model)(weights=None, classifier_activation=None)
loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
optimizer = tf.keras.optimizers.SGD(0.01)
optimizer.build(model.trainable_variables)
images = tf.random.uniform((args.batch, pixels, pixels, 3))
labels = tf.random.uniform((args.batch,), maxval=classes, dtype=tf.int64)


@tf.function
def step():
    with tf.GradientTape() as tape:
        loss = loss_of(labels, model(images, training=True))
    gradients = hvd.DistributedGradientTape(tape).gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))


hvd.broadcast_variables(model.variables, root_rank=0)
for _ in range(args.steps):  # warm-up: tracing, and the first connections
    step()

seconds = []
for _ in range(args.rounds):
    hvd.allreduce(tf.zeros(1), name="start")  # Corrected: no common start
    began = time.perf_counter()
    for _ in range(args.steps):
        step()
    seconds.append(time.perf_counter() - began)

# Corrected: the speed of rank 0 times the number of ranks. A round ends when its slowest rank ends.
slowest = np.max(hvd.allgather_object(seconds), axis=0)
speed = ranks * args.batch * args.steps / np.median(slowest)
if rank == 0:
    size = sum(int(tf.size(one)) for one in model.trainable_variables)
    print(f"{args.model}: {size:,} parameters, {args.batch} images on each of {ranks} ranks")
    print(f"{speed:,.0f} images/s in all, {speed / ranks:,.0f} on each rank")
hvd.shutdown()
