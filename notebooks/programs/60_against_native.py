"""The same training step with Horovod and with TensorFlow's own MultiWorkerMirroredStrategy.

    horovodrun -np 2 python 60_against_native.py horovod
    TF_CONFIG=… python 60_against_native.py native     # in each process, with its task index

Prints the images per second of all ranks together, in each of five rounds of ten steps.
"""

import sys
import time

import tensorflow as tf

BATCH, STEPS, ROUNDS = 64, 10, 5
horovod = sys.argv[1] == "horovod"
if horovod:
    import horovod.tensorflow as hvd

    hvd.init()
    rank, ranks, strategy = hvd.rank(), hvd.size(), tf.distribute.get_strategy()
else:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    rank, ranks = strategy.cluster_resolver.task_id, strategy.num_replicas_in_sync

x, y = tf.random.normal((BATCH, 784)), tf.zeros(BATCH, tf.int32)
with strategy.scope():
    layers = [tf.keras.layers.Dense(1024, "relu") for _ in range(3)]
    model = tf.keras.Sequential([*layers, tf.keras.layers.Dense(10)])
    model.build((None, 784))
    optimizer = tf.keras.optimizers.SGD(0.001)
    optimizer.build(model.trainable_variables)


def step():
    with tf.GradientTape() as tape:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, model(x, training=True))
        loss = tf.reduce_mean(losses) / (1 if horovod else ranks)  # the strategy sums
    if horovod:
        tape = hvd.DistributedGradientTape(tape)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))


@tf.function
def steps():
    for _ in tf.range(STEPS):
        strategy.run(step)


steps()  # compiled, connected
found = []
for _ in range(ROUNDS):
    start = time.perf_counter()
    steps()
    found.append(ranks * BATCH * STEPS / (time.perf_counter() - start))
if rank == 0:
    size = sum(one.shape.num_elements() for one in model.trainable_variables) * 4 / 1e6
    print(f"{sys.argv[1]}, {ranks} ranks, {size:.1f} MB of gradients; images/s:",
          *(f"{one:.0f}" for one in sorted(found)))  # fmt: skip
