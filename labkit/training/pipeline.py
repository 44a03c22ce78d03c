"""How images reach the replicas: resident on each device, or streamed by tf.data.

MNIST is 47 MB. What fits is put on the device once, and a step only picks its rows: no copy, no
Python, no thread. What does not fit is streamed: shuffled, batched, prefetched.
Both give every replica its own slice of the same global batch, as bytes; the step scales them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from labkit.hardware.devices import import_tensorflow

__all__ = ["Resident", "Streamed", "order_of", "scaled", "stream"]


@dataclass(frozen=True)
class Resident:
    """The whole training set, one copy on each replica's device."""

    images: Any
    labels: Any
    batch: int
    """Images per replica and step."""
    replicas: int

    @staticmethod
    def place(strategy: Any, images: Any, labels: Any, batch: int) -> Resident:
        """Put the arrays on every replica's device."""
        tf = import_tensorflow()

        # Replicas are counted over all processes, devices within this one.
        devices = strategy.extended.worker_devices

        def on_each(array: Any) -> Any:
            def put(context: Any) -> Any:
                with tf.device(devices[context.replica_id_in_sync_group % len(devices)]):
                    return tf.identity(array)

            return strategy.experimental_distribute_values_from_function(put)

        count = strategy.num_replicas_in_sync
        return Resident(on_each(images), on_each(labels.astype("int32")), batch, count)

    def arguments(self, order: Any, number: Any) -> tuple[Any, ...]:
        """What `pick` needs, as seen from outside the replicas."""
        return self.images, self.labels, order, number

    def pick(self, images: Any, labels: Any, order: Any, number: Any) -> tuple[Any, Any]:
        """On a replica: its slice of the global batch with this number."""
        import tensorflow as tf

        rank = tf.distribute.get_replica_context().replica_id_in_sync_group
        first = (number * self.replicas + rank) * self.batch
        rows = order[first : first + self.batch]
        return tf.gather(images, rows), tf.gather(labels, rows)

    def held(self) -> _Held:
        """The same batch for ever: what a step costs when its input is free."""
        tf = import_tensorflow()
        strategy = tf.distribute.get_strategy()

        @tf.function  # type: ignore[untyped-decorator]
        def first() -> Any:
            order = tf.range(self.batch * self.replicas)
            return strategy.run(self.pick, args=self.arguments(order, tf.constant(0)))

        return _Held(first.get_concrete_function()())


@dataclass(frozen=True)
class Streamed:
    """A tf.data pipeline, dealt out to the replicas."""

    iterator: Any

    @staticmethod
    def place(strategy: Any, images: Any, labels: Any, batch: int, seed: int) -> Streamed:
        """Stream global batches; the strategy gives each replica its slice."""
        pipeline = stream(images, labels, batch, seed)
        return Streamed(iter(strategy.experimental_distribute_dataset(pipeline)))

    def arguments(self, order: Any, number: Any) -> tuple[Any, ...]:
        """The next batch; its order is the pipeline's own."""
        return tuple(next(self.iterator))

    def pick(self, images: Any, labels: Any) -> tuple[Any, Any]:
        """On a replica: the slice has come already."""
        return images, labels

    def held(self) -> _Held:
        """The same batch for ever: what a step costs when its input is free."""
        return _Held(tuple(next(self.iterator)))


@dataclass(frozen=True)
class _Held:
    batch: tuple[Any, ...]

    def arguments(self, order: Any, number: Any) -> tuple[Any, ...]:
        return self.batch

    def pick(self, images: Any, labels: Any) -> tuple[Any, Any]:
        return images, labels


def order_of(images: int, epoch: int, seed: int) -> Any:
    """The order of one epoch's images: the same for any number of replicas."""
    tf = import_tensorflow()
    return tf.random.experimental.stateless_shuffle(tf.range(images), seed=[seed, epoch])


def scaled(images: Any) -> Any:
    """Bytes as float32 from 0 to 1; dividing NumPy bytes by 255.0 would give float64."""
    import tensorflow as tf

    return tf.cast(images, tf.float32) * (1 / 255)


def stream(images: Any, labels: Any, batch: int, seed: int) -> Any:
    """The pipeline for data that does not fit: shuffle, batch, repeat, prefetch, in this order.

    Bytes travel and floats are made on the device: a quarter of the traffic. Shuffling before
    batching mixes images, not batches. Prefetching works on the next batch while this one trains.
    """
    tf = import_tensorflow()
    options = tf.data.Options()
    policy = tf.data.experimental.AutoShardPolicy
    options.experimental_distribute.auto_shard_policy = policy.DATA
    # Without a pool of its own, tf.data competes with the training step for the same threads.
    options.threading.private_threadpool_size = 1
    return (
        tf.data.Dataset.from_tensor_slices((images, labels.astype("int32")))
        .shuffle(len(labels), seed=seed, reshuffle_each_iteration=True)
        .batch(batch, drop_remainder=True)
        .repeat()
        .prefetch(tf.data.AUTOTUNE)
        .with_options(options)
    )
