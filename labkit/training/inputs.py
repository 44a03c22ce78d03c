"""How images reach the replicas: kept in each device's memory, or from a tf.data pipeline.

MNIST is 47 MB. What fits is copied to each device once, and a step only gathers its rows: no copy,
no Python, no thread. What does not fit comes from a pipeline: shuffled, batched, prefetched.
Both give each replica its slice of the same global batch, as bytes; the step scales them.

>>> batch_sizes(32, replicas=4, scaling="strong"), batch_sizes(32, replicas=4, scaling="weak")
((32, 8), (128, 32))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from labkit.arguments import one_of, whole
from labkit.hardware.devices import import_tensorflow
from labkit.kinds import LabError

__all__ = [
    "Inputs",
    "batch_sizes",
    "cached_batch",
    "dataset",
    "epoch_order",
    "from_dataset",
    "in_memory",
    "scale_images",
]


@dataclass(frozen=True)
class Inputs:
    """Where the batches of a job come from."""

    arguments: Callable[[Any, Any], tuple[Any, ...]]
    """Outside the replicas, of (order, step): what `batch_at` is called with."""
    batch_at: Callable[..., tuple[Any, Any]]
    """On a replica: its images and labels of this step."""
    resumable: bool
    """Whether training can start again in the middle of an epoch."""


def in_memory(strategy: Any, images: Any, labels: Any, batch: int) -> Inputs:
    """The whole training set on each replica's device; `batch` is that of a replica."""
    tf = import_tensorflow()
    replicas = strategy.num_replicas_in_sync  # of all processes; the devices are of this one
    devices = strategy.extended.worker_devices

    def on_each(array: Any) -> Any:
        def copy(context: Any) -> Any:
            with tf.device(devices[context.replica_id_in_sync_group % len(devices)]):
                return tf.identity(array)

        return strategy.experimental_distribute_values_from_function(copy)

    copies = on_each(images), on_each(labels.astype("int32"))

    def batch_at(images: Any, labels: Any, order: Any, step: Any) -> tuple[Any, Any]:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        first = (step * replicas + replica) * batch
        rows = order[first : first + batch]
        return tf.gather(images, rows), tf.gather(labels, rows)

    return Inputs(lambda order, step: (*copies, order, step), batch_at, resumable=True)


def from_dataset(strategy: Any, pipeline: Any) -> Inputs:
    """A tf.data pipeline of global batches; the strategy gives each replica its slice."""
    batches = iter(strategy.experimental_distribute_dataset(pipeline))
    return Inputs(lambda _order, _step: tuple(next(batches)), _unchanged, resumable=False)


def cached_batch(strategy: Any, inputs: Inputs, global_batch: int) -> Inputs:
    """The same batch in every step: what a step costs when its input is free."""
    tf = import_tensorflow()

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def first() -> Any:
        arguments = inputs.arguments(tf.range(global_batch), tf.constant(0))
        return strategy.run(inputs.batch_at, args=arguments)

    batch = first()
    return Inputs(lambda _order, _step: batch, _unchanged, resumable=False)


def _unchanged(images: Any, labels: Any) -> tuple[Any, Any]:
    return images, labels


def dataset(images: Any, labels: Any, batch: int, seed: int) -> Any:
    """The pipeline for data that does not fit: shuffle, batch, repeat, prefetch, in this order.

    Bytes travel and floats are made on the device: a quarter of the traffic. Shuffling before
    batching mixes images, not batches. Prefetching prepares the next batch during this step.
    """
    tf = import_tensorflow()
    options = tf.data.Options()
    policy = tf.data.experimental.AutoShardPolicy
    options.experimental_distribute.auto_shard_policy = policy.DATA
    # Without threads of its own, tf.data competes with the training step for the same ones.
    options.threading.private_threadpool_size = 1
    return (
        tf.data.Dataset.from_tensor_slices((images, labels.astype("int32")))
        .shuffle(len(labels), seed=seed, reshuffle_each_iteration=True)
        .batch(batch, drop_remainder=True)
        .repeat()
        .prefetch(tf.data.AUTOTUNE)
        .with_options(options)
    )


def epoch_order(images: int, epoch: int, seed: int) -> Any:
    """The order of an epoch's images: the same for any number of replicas."""
    tf = import_tensorflow()
    return tf.random.experimental.stateless_shuffle(tf.range(images), seed=[seed, epoch])


def scale_images(images: Any) -> Any:
    """Bytes as float32 from 0 to 1; dividing NumPy bytes by 255.0 would give float64."""
    tf = import_tensorflow()
    return tf.cast(images, tf.float32) * (1 / 255)


def batch_sizes(batch: int, replicas: int, scaling: str) -> tuple[int, int]:
    """Global batch, and batch per replica.

    "strong": the same global batch for any number of replicas, so each gets a smaller share.
    "weak": the same batch per replica, so the global batch grows with their number.
    """
    batch = whole("batch", batch, at_least=1)
    if one_of("scaling", scaling, ("strong", "weak")) == "weak":
        return batch * replicas, batch
    if batch % replicas:
        raise LabError(
            f"A global batch of {batch} cannot be divided evenly among {replicas} replicas. "
            f"Take a multiple of {replicas}, such as {replicas * max(1, round(batch / replicas))}."
        )
    return batch, batch // replicas
