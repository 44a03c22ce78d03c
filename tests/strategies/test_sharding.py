"""Which worker reads which images, under each of tf.data's policies."""

from __future__ import annotations

from labkit.kinds import measured
from labkit.strategies import sharding
from labkit.strategies.sharding import Shard, Sharding


def batches(read, policy):
    return [shard.batches for shard in read.shards if shard.policy == policy]


def test_images_are_sharded_as_the_policy_says():
    """One file for two workers; the lecture has two files."""
    read = sharding(images=8, batch=4, files=1)
    assert batches(read, "data") == [((0, 1), (4, 5)), ((2, 3), (6, 7))]
    assert batches(read, "off") == [((0, 1), (2, 3), (4, 5), (6, 7))] * 2
    assert read.verdict("data") == "every image once"
    assert read.verdict("off") == "every image 2 times, once on each worker"
    assert "fewer files than workers" in read.verdict("file")
    assert read.verdict("auto") == read.verdict("file")
    for text in read._repr_mimebundle_().values():
        assert "0 1 | 4 5" in text


def test_images_that_no_worker_read_are_counted():
    shards = tuple(Shard("data", worker, ((0, 1),)) for worker in range(2))
    read = Sharding(2, 4, 4, 0, shards, measured("a test"))
    assert "0 to 2 times, 2 of them never" in read.verdict("data")
