"""Five steps of Keras 2 `fit` with Horovod's DistributedOptimizer; rank 0 saves the weights."""

import sys

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf

hvd.init()
rank, ranks = hvd.rank(), hvd.size()
random = np.random.default_rng(0)
images = random.normal(size=(5, 32, 20)).astype("float32")[:, rank::ranks].reshape(-1, 20)
labels = random.integers(0, 10, size=(5, 32))[:, rank::ranks].ravel()
tf.keras.utils.set_random_seed(0)  # the same weights: the callback broadcasts after the first step
model = tf.keras.Sequential(
    [tf.keras.layers.Dense(16, "relu", input_shape=(20,)), tf.keras.layers.Dense(10)]
)
model.compile(
    hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1, momentum=0.9)),
    tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
)
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
model.fit(images, labels, batch_size=32 // ranks, shuffle=False, verbose=0, callbacks=callbacks)
weights = np.concatenate([each.ravel() for each in model.get_weights()])
print(f"rank {rank} of {ranks}: checksum {weights.sum():.4f}")
if rank == 0:
    np.save(sys.argv[1], weights)
hvd.shutdown()
