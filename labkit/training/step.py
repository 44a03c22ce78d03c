"""The training step of the course. Strategies differ only in where they run it.

TensorFlow traces these functions, in a job that has started it already.
"""

from collections.abc import Callable, Sequence
from typing import Any


def training_step(
    model: Any,
    optimizer: Any,
    images: Any,
    labels: Any,
    global_batch: int,
    reduce: Callable[[list[Any]], list[Any]],
) -> Any:
    """Forward, backward, reduce, update. Returns this replica's part of the mean loss."""
    import tensorflow as tf

    with tf.GradientTape() as tape:
        logits = model(images, training=True)  # (batch, classes)
        loss = tf.reduce_sum(loss_per_image(labels, logits)) / global_batch
    gradients = tape.gradient(loss, model.trainable_variables)  # each as its variable
    gradients = reduce(gradients)  # the only line that knows of other replicas
    optimizer.apply(gradients, model.trainable_variables)
    return loss


def loss_per_image(labels: Any, logits: Any) -> Any:
    """Returns the cross-entropy of class numbers against logits, a value for each image."""
    import tensorflow as tf

    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)


def sum_over_replicas(gradients: Sequence[Any]) -> list[Any]:
    """Returns all gradients summed over the replicas, in a single all-reduce."""
    import tensorflow as tf

    # Shapes such as (784, 128), (128,), (128, 10) become (all parameters,) and again themselves.
    flat = tf.concat([tf.reshape(gradient, [-1]) for gradient in gradients], axis=0)
    total = tf.distribute.get_replica_context().all_reduce("sum", flat)
    pieces = tf.split(total, [gradient.shape.num_elements() for gradient in gradients])
    return [tf.reshape(piece, g.shape) for piece, g in zip(pieces, gradients, strict=True)]
