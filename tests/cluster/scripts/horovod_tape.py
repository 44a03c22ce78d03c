"""Five steps of Horovod's DistributedGradientTape; rank 0 saves the weights."""

import sys

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

hvd.init()
rank, ranks = hvd.rank(), hvd.size()
random = np.random.default_rng(0)
images = random.normal(size=(5, 32, 20)).astype("float32")
labels = random.integers(0, 10, size=(5, 32))
tf.keras.utils.set_random_seed(rank)  # replaced by the weights of rank 0
model = tf.keras.Sequential(
    [tf.keras.layers.Dense(16, "relu", input_shape=(20,)), tf.keras.layers.Dense(10)]
)
loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
optimizer = tf.keras.optimizers.SGD(0.1, momentum=0.9)
if rank == 0:
    tf.keras.utils.set_random_seed(7)
    model.set_weights([random.normal(size=each.shape) / 4 for each in model.get_weights()])
hvd.broadcast_variables(model.variables, root_rank=0)
for batch, wanted in zip(images, labels, strict=True):
    with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
        loss = loss_of(wanted[rank::ranks], model(batch[rank::ranks]))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
weights = np.concatenate([each.ravel() for each in model.get_weights()])
print(f"rank {rank} of {ranks}: checksum {weights.sum():.4f}")
if rank == 0:
    np.save(sys.argv[1], weights)
hvd.shutdown()
