"""How images reach the replicas: copied to each device once; a step only gathers its rows.

MNIST is 47 MB as bytes. Each replica takes its slice of the same global batch, and the step scales
it.

>>> batch_sizes(32, replicas=4, scaling="strong"), batch_sizes(32, replicas=4, scaling="weak")
((32, 8), (128, 32))
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from labkit.arguments import one_of, whole
from labkit.hardware.devices import import_tensorflow
from labkit.kinds import LabError


@dataclass(frozen=True)
class Inputs:
    """Where the batches of a job come from."""

    arguments: Callable[[Any, Any], tuple[Any, ...]]
    """Called outside the replicas with (order, step); returns the arguments of `batch_at`."""
    batch_at: Callable[..., tuple[Any, Any]]
    """Called on a replica; returns its images and labels of this step."""


def in_memory(strategy: Any, images: Any, labels: Any, batch: int) -> Inputs:
    """Copy the whole training set to each replica's device; `batch` is that of a replica."""
    tf = import_tensorflow()
    replicas = strategy.num_replicas_in_sync  # of all processes; the devices are of this one
    devices = strategy.extended.worker_devices
    labels = labels.astype("int32")
    if "gpu" in devices[0].lower():
        # TensorFlow 2.21 gathers no bytes on a GPU: each step would copy all images to the CPU. And
        # an int32 tensor stays in main memory. float16 holds 0 to 255 exactly.
        images, labels = images.astype("float16"), labels.astype("int64")

    def on_each(array: Any) -> Any:
        def copy(context: Any) -> Any:
            with tf.device(devices[context.replica_id_in_sync_group % len(devices)]):
                return tf.identity(array)

        return strategy.experimental_distribute_values_from_function(copy)

    copies = on_each(images), on_each(labels)

    def batch_at(images: Any, labels: Any, order: Any, step: Any) -> tuple[Any, Any]:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        first = (step * replicas + replica) * batch
        rows = order[first : first + batch]  # (batch,) of the numbers of images
        return tf.gather(images, rows), tf.gather(labels, rows)  # (batch, 28, 28), (batch,)

    return Inputs(lambda order, step: (*copies, order, step), batch_at)


def cached_batch(strategy: Any, inputs: Inputs, global_batch: int) -> Inputs:
    """Returns inputs with the same batch in every step, to time a step whose input is free."""
    tf = import_tensorflow()

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def first() -> Any:
        arguments = inputs.arguments(tf.range(global_batch), tf.constant(0))
        return strategy.run(inputs.batch_at, args=arguments)

    batch = first()
    return Inputs(lambda _order, _step: batch, lambda *both: both)


def epoch_order(images: int, epoch: int, seed: int) -> Any:
    """Returns the order of an epoch's images, the same for any number of replicas."""
    tf = import_tensorflow()
    return tf.random.experimental.stateless_shuffle(tf.range(images), seed=[seed, epoch])


def scale_images(images: Any) -> Any:
    """Returns bytes as float32 from 0 to 1; NumPy's bytes divided by 255.0 would be float64."""
    tf = import_tensorflow()
    return tf.cast(images, tf.float32) * (1 / 255)


def batch_sizes(batch: int, replicas: int, scaling: str) -> tuple[int, int]:
    """Returns the global batch and the batch of a replica.

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
