"""Judges of lecture 37: other right ways of writing an answer, and mistakes beyond the text's."""

import random

import numpy as np
import pytest

from labkit.exercises import tasks
from labkit.exercises.judges.answers import solved
from tests.exercises.cells import refused, value

TASKS = tasks()

RIGHT = {
    "rate": [
        """
def my_rate(stages, prefetch):
    times = np.array([s / w for s, w in stages], float)
    if prefetch:
        return np.min(1 / times)
    return float(1 / times.sum())
""",
        """
def my_rate(stages, prefetch):
    slowest = total = 0
    for seconds, workers in stages:
        slowest = max(slowest, seconds / workers)
        total += seconds / workers
    return 1 / slowest if prefetch else 1 / total
""",
    ],
    "pipeline": [
        """
def my_pipeline(names, read, batch, parallel):
    return (tf.data.Dataset.from_tensor_slices(tf.constant(names))
            .map(lambda name: read(name), num_parallel_calls=parallel, deterministic=True)
            .batch(batch, drop_remainder=False, num_parallel_calls=1)
            .prefetch(tf.data.AUTOTUNE))
""",
        """
def my_pipeline(names, read, batch, parallel):
    d = tf.data.Dataset.from_tensor_slices(names)
    d = d.map(read, num_parallel_calls=tf.data.AUTOTUNE)
    return d.batch(batch).prefetch(2)
""",
        """
def my_pipeline(names, read, batch, parallel):
    def one(name):
        return tf.data.Dataset.from_tensors(name).map(read)
    d = tf.data.Dataset.from_tensor_slices(names)
    d = d.interleave(one, cycle_length=parallel, num_parallel_calls=parallel, deterministic=True)
    return d.batch(batch).prefetch(1)
""",
        """
def my_pipeline(names, read, batch, parallel):
    d = tf.data.Dataset.range(len(names)).map(lambda i: tf.gather(tf.constant(names), i))
    return d.map(read, num_parallel_calls=parallel).prefetch(2 * batch).batch(batch)
""",
    ],
    "interleave": [
        """
def my_order(files, cycle, block):
    from collections import deque
    waiting = deque(map(iter, files))
    places = {}
    order = []
    at = 0
    while waiting or places:
        if at not in places and waiting:
            places[at] = waiting.popleft()
        for _ in range(block):
            if at not in places:
                break
            try:
                order.append(next(places[at]))
            except StopIteration:
                del places[at]
        at = (at + 1) % cycle
    return np.array(order)
""",
    ],
    "shuffle": [
        """
def my_shuffle(stream, size, rng):
    buffer = []
    for one in stream:
        if len(buffer) < size:
            buffer.append(one)
            continue
        at = rng.integers(0, size)
        out, buffer[at] = buffer[at], one
        yield out
    rng.shuffle(buffer)
    yield from buffer
""",
        """
def my_shuffle(stream, size, rng):
    stream, buffer, more = iter(stream), [], True
    while True:
        while more and len(buffer) < size:
            try:
                buffer.append(next(stream))
            except StopIteration:
                more = False
        if not buffer:
            return
        yield buffer.pop(int(rng.random() * len(buffer)))
""",
        """
def my_shuffle(stream, size, rng):
    import random
    buffer = []
    for one in stream:
        if len(buffer) == size:
            yield buffer.pop(random.Random(int(rng.integers(2**32))).randrange(size))
        buffer.append(one)
    yield from rng.permutation(np.array(buffer, int))
""",
        """
def my_shuffle(stream, size, rng):
    import itertools
    stream = iter(stream)
    buffer = list(itertools.islice(stream, size))
    for one in stream:
        buffer.append(one)
        at = rng.choice(size)
        yield buffer.pop(at)
    for at in rng.permutation(len(buffer)):
        yield buffer[at]
""",
    ],
    "chunk_bytes": [
        """
def my_bytes(rows, chunk, row_bytes):
    return np.unique(np.asarray(list(rows), int) // chunk).size * chunk * row_bytes
""",
        """
def my_bytes(rows, chunk, row_bytes):
    seen, total = set(), 0
    for row in rows:
        first = row - row % chunk
        if first not in seen:
            seen.add(first)
            total += chunk * row_bytes
    return float(total)
""",
    ],
    "records": [
        """
def my_records(file, records, size, rank, ranks, worker, workers):
    reader, readers = worker * ranks + rank, ranks * workers
    lo, hi = records * reader // readers, records * (reader + 1) // readers
    file.seek(lo * size)
    content = file.read((hi - lo) * size)
    return [content[i : i + size] for i in range(0, len(content), size)]
""",
        """
def my_records(file, records, size, rank, ranks, worker, workers):
    of_rank = np.arange(records)[rank::ranks]
    mine = of_rank[worker::workers]
    def one(i):
        file.seek(int(i) * size)
        return file.read(size)
    return (one(i) for i in mine)
""",
        """
def my_records(file, records, size, rank, ranks, worker, workers):
    mine = np.array_split(np.array_split(np.arange(records), ranks)[rank], workers)[worker]
    found = []
    for i in mine.tolist():
        file.seek(i * size)
        buffer = bytearray(size)
        file.readinto(buffer)
        found.append(buffer)
    return found
""",
    ],
    "epochs": [
        """
def my_dataset(examples, decode, augment, batch, rank, ranks):
    mine = examples[rank::ranks]
    d = tf.data.Dataset.from_tensor_slices(mine)
    d = d.map(decode, num_parallel_calls=4).cache().shuffle(max(1, len(mine)))
    return d.map(augment, num_parallel_calls=4).batch(batch)
""",
        """
def my_dataset(examples, decode, augment, batch, rank, ranks):
    n = len(examples)
    d = tf.data.Dataset.from_tensor_slices(examples)
    d = d.shuffle(n, seed=1, reshuffle_each_iteration=False).shard(ranks, rank)
    d = d.map(decode).cache().map(augment).shuffle(n)
    return d.batch(batch).prefetch(tf.data.AUTOTUNE)
""",
        """
def my_dataset(examples, decode, augment, batch, rank, ranks):
    d = tf.data.Dataset.range(len(examples)).filter(lambda i: i % ranks == rank)
    d = d.map(lambda i: decode(tf.gather(examples, i))).cache()
    d = d.shuffle(1000, seed=3).batch(batch).unbatch()
    return d.map(augment).batch(batch)
""",
    ],
    "from_step": [
        """
def my_batches(read, examples, batch, seed, epoch, step):
    import random
    order = list(range(examples))
    random.Random(1000 * seed + epoch).shuffle(order)
    return [[read(i) for i in order[a:a + batch]]
            for a in range(step * batch, examples, batch)]
""",
        """
def my_batches(read, examples, batch, seed, epoch, step):
    rng = np.random.default_rng(seed)
    for _ in range(epoch + 1):
        order = rng.permutation(examples)
    part = []
    for i in order[step * batch:]:
        part.append(read(i))
        if len(part) == batch:
            yield part
            part = []
    if part:
        yield part
""",
        """
def my_batches(read, examples, batch, seed, epoch, step):
    np.random.seed(seed * 7919 + epoch)
    order = np.random.permutation(examples)
    steps = (examples + batch - 1) // batch
    for s in range(step, steps):
        yield tuple(map(read, order[s * batch : s * batch + batch].tolist()))
""",
    ],
    "checkpoint": [
        """
def my_run(make_dataset, folder, steps):
    it = iter(make_dataset())
    saved = tf.train.Checkpoint(it=it)
    manager = tf.train.CheckpointManager(saved, folder, max_to_keep=1)
    manager.restore_or_initialize()
    found = []
    for _ in range(steps):
        one = it.get_next_as_optional()
        if not one.has_value():
            break
        found.append(one.get_value().numpy())
    manager.save()
    return found
""",
        """
def my_run(make_dataset, folder, steps):
    import os
    it = iter(make_dataset())
    saved = tf.train.Checkpoint(it=it)
    if os.path.exists(folder + "/last.index"):
        saved.read(folder + "/last")
    found = []
    while len(found) < steps:
        try:
            found.append(next(it).numpy().tolist())
        except StopIteration:
            break
    saved.write(folder + "/last")
    return found
""",
    ],
}

WRONG = {
    "pipeline": [
        (
            """
def my_pipeline(names, read, batch, parallel):
    import numpy as np
    d = tf.data.Dataset.from_tensor_slices(names).batch(batch)
    d = d.map(lambda part: tf.map_fn(read, part, fn_output_signature=tf.float32),
              num_parallel_calls=parallel)
    return d.prefetch(1)
""",
            "",
        ),
        (
            """
def my_pipeline(names, read, batch, parallel):
    d = tf.data.Dataset.from_tensor_slices(names).map(read, num_parallel_calls=parallel)
    return d.cache().batch(batch)
""",
            "Prefetch whole batches",
        ),
        ("def my_pipeline(names, read, batch, parallel):\n    return names", "tf.data.Dataset"),
        (
            """
def my_pipeline(names, read, batch, parallel):
    d = tf.data.Dataset.from_tensor_slices(names).map(read, num_parallel_calls=parallel)
    return d.batch(batch).repeat().prefetch(1)
""",
            "",
        ),
    ],
    "shuffle": [
        (
            """
def my_shuffle(stream, size, rng):
    buffer = []
    for one in stream:
        buffer.append(one)
        if len(buffer) == size:
            yield buffer.pop(rng.integers(size))
""",
            "never comes",
        ),
        (
            """
def my_shuffle(stream, size, rng):
    everything = list(stream)
    rng.shuffle(everything)
    return everything
""",
            "Keep `size` of them",
        ),
        (
            """
def my_shuffle(stream, size, rng):
    buffer = []
    for one in stream:
        buffer.append(one)
        if len(buffer) == size:
            yield buffer.pop(rng.integers(size))
    yield from buffer
""",
            "go on drawing",
        ),
        ("def my_shuffle(stream, size, rng):\n    return list(stream)", ""),
        (
            """
def my_shuffle(stream, size, rng):
    import random
    random.seed(1)
    stream = list(stream)
    random.shuffle(stream)
    yield from stream
""",
            "",
        ),
        (
            """
def my_shuffle(stream, size, rng):
    stream = iter(stream)
    buffer = [x for _, x in zip(range(size), stream)]
    while buffer:
        at = min(rng.integers(len(buffer)), rng.integers(len(buffer)))
        yield buffer.pop(at)
        buffer += [x for _, x in zip(range(1), stream)]
""",
            "uniformly",
        ),
    ],
    "records": [
        (
            """
def my_records(file, records, size, rank, ranks, worker, workers):
    if worker:
        return []
    mine = []
    for i in range(rank, records, ranks):
        file.seek(i * size)
        mine.append(file.read(size))
    return mine
""",
            "No two may differ",
        ),
        (
            """
def my_records(file, records, size, rank, ranks, worker, workers):
    return [i for i in range(rank * workers + worker, records, ranks * workers)]
""",
            "return what file.read gives",
        ),
    ],
    "from_step": [
        (
            """
def my_batches(read, examples, batch, seed, epoch, step):
    starts = np.random.default_rng([seed, epoch]).permutation(range(0, examples, batch))
    for first in starts[step:]:
        yield [read(i) for i in range(first, min(first + batch, examples))]
""",
            "",
        ),
        (
            """
def my_batches(read, examples, batch, seed, epoch, step):
    order = np.random.default_rng([seed, epoch]).integers(0, examples, examples)
    for first in range(step * batch, examples, batch):
        yield [read(i) for i in order[first : first + batch]]
""",
            "must come once",
        ),
        (
            """
def my_batches(read, examples, batch, seed, epoch, step):
    order = np.random.default_rng([seed, epoch]).permutation(examples)
    for first in range(step * batch, examples, batch):
        yield [int(i) for i in order[first : first + batch]]
""",
            "what read(i) returned",
        ),
    ],
    "epochs": [
        (
            """
def my_dataset(examples, decode, augment, batch, rank, ranks):
    d = tf.data.Dataset.from_tensor_slices(examples).batch(batch).shard(ranks, rank).unbatch()
    d = d.map(decode).cache().map(augment).cache().shuffle(len(examples))
    return d.batch(batch)
""",
            "must come after cache",
        ),
        (
            """
def my_dataset(examples, decode, augment, batch, rank, ranks):
    share = len(examples) // ranks
    d = tf.data.Dataset.from_tensor_slices(examples[rank * share : (rank + 1) * share])
    return d.map(decode).cache().shuffle(len(examples)).map(augment).batch(batch)
""",
            "never comes",
        ),
        (
            """
def my_dataset(examples, decode, augment, batch, rank, ranks):
    d = tf.data.Dataset.from_tensor_slices(examples).shard(ranks, rank)
    return d.map(decode).cache().map(augment).batch(batch)
""",
            "same in each epoch",
        ),
    ],
    "checkpoint": [
        (
            """
def my_run(make_dataset, folder, steps):
    it = iter(make_dataset())
    checkpoint = tf.train.Checkpoint(it=it)
    checkpoint.restore(tf.train.latest_checkpoint(folder))
    found = []
    for one in it:
        if len(found) == steps:
            break
        found.append(one)
    checkpoint.save(folder + "/x")
    return found
""",
            "not returned is lost",
        ),
        (
            """
def my_run(make_dataset, folder, steps):
    dataset = make_dataset()
    checkpoint = tf.train.Checkpoint(dataset=dataset)
    checkpoint.restore(tf.train.latest_checkpoint(folder)).expect_partial()
    found = list(dataset.take(steps))
    checkpoint.save(folder + "/x")
    return found
""",
            "",
        ),
        (
            """
def my_run(make_dataset, folder, steps):
    it = iter(make_dataset())
    checkpoint = tf.train.Checkpoint(it=it)
    checkpoint.restore(tf.train.latest_checkpoint(folder))
    found = list(it)[:steps]
    checkpoint.save(folder + "/x")
    return found
""",
            "",
        ),
    ],
}


@pytest.mark.parametrize(
    ("name", "source"), [(name, one) for name, all_of in RIGHT.items() for one in all_of]
)
def test_another_right_way_is_right(name, source):
    TASKS[f"37.{name}"].judge(value(source))


@pytest.mark.parametrize(
    ("name", "source", "words"), [(name, *one) for name, all_of in WRONG.items() for one in all_of]
)
def test_another_wrong_way_is_refused(name, source, words):
    refused(f"37.{name}", value(source), words)


def test_interleave_by_hand_is_that_of_tf_data():
    import tensorflow as tf

    mine, draw = solved(TASKS["37.interleave"].solution), random.Random(37)
    for _ in range(25):
        files = [
            [100 * number + place for place in range(draw.randint(0, 5))]
            for number in range(draw.randint(1, 6))
        ]
        cycle, block = draw.randint(1, 4), draw.randint(1, 3)
        ragged = tf.ragged.constant(files, tf.int64, inner_shape=())
        dataset = tf.data.Dataset.from_tensor_slices(ragged).interleave(
            tf.data.Dataset.from_tensor_slices, cycle_length=cycle, block_length=block
        )
        assert mine(files, cycle, block) == [int(one) for one in dataset], (files, cycle, block)


def test_shuffle_by_hand_moves_elements_as_tf_data_does():
    """Where the last of five elements comes, in a buffer of two: 1/2 at the end, and so on."""
    mine = solved(TASKS["37.shuffle"].solution)
    places = [list(mine(range(5), 2, np.random.default_rng(run))).index(0) for run in range(4000)]
    shares = np.bincount(places, minlength=5) / 4000
    assert shares == pytest.approx([1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 16], abs=0.04)
