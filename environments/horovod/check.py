"""Two ranks: an all-reduce, and a gradient of DistributedGradientTape that is the mean of both."""

import horovod.tensorflow as hvd
import tensorflow as tf

hvd.init()
rank, ranks = hvd.rank(), hvd.size()
total = hvd.allreduce(tf.constant(rank + 1.0), op=hvd.Sum)
assert float(total) == ranks * (ranks + 1) / 2, total
weight = tf.Variable(1.0)
with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
    loss = weight * (rank + 1.0)
(gradient,) = tape.gradient(loss, [weight])
assert float(gradient) == (ranks + 1) / 2, gradient
print(f"rank {rank} of {ranks}: TensorFlow {tf.__version__}, gradients are averaged")
hvd.shutdown()
