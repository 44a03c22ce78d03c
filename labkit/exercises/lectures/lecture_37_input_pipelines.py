"""Judges of lecture 37: what a pipeline reads, in which order, how often, and what overlaps.

Nothing is timed. Reads wait for each other where a right pipeline lets them, and what they have
seen is judged. `labkit grade` observes an answer in the answer's process: facts come back.
"""

import itertools
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from labkit import storage
from labkit.exercises.blanks import raised
from labkit.exercises.judges.answers import beside, function, judged, note
from labkit.exercises.task import Unanswered, Wrong
from labkit.hardware.devices import import_tensorflow
from labkit.kinds import LabError

PATIENCE = 5.0  # seconds until a read that waits for another one takes it that none comes
SECONDS = 60.0


def observing(observe: Callable[..., Any], judge: Callable[..., None], *cases: Any) -> Any:
    """The judge of a function: `judge` gets what `observe` saw in each case."""

    def examine(answer: Any) -> None:
        for case in cases:
            judge(*case, beside(answer, observe, *case))

    return judged(examine)


def _observer(watch: Callable[..., Any]) -> Callable[..., Any]:
    """`watch(answer, *case)` with the time limit of a judge; what it sees is noted."""

    def observe(answer: Any, *case: Any) -> Any:
        found: list[Any] = []
        function(lambda called: found.append(watch(called, answer, *case)), SECONDS)(answer)
        note(found)
        return found[0]

    return observe


@contextmanager
def _of(answer: Any) -> Iterator[None]:
    """What fails here is told as a fault of the answer, with its line."""
    try:
        yield
    except LabError:
        raise
    except Exception as fault:  # noqa: BLE001 (whatever an answer raises)
        raise Wrong(raised(fault, answer)) from None


def _taken(answer: Any, found: Any, most: int, what: str) -> list[Any]:
    """The elements of what was returned, of which there must not be more than `most`."""
    if found is None or found is ...:
        raise Unanswered
    with _of(answer):
        try:
            elements = list(itertools.islice(iter(found), most + 1))
        except TypeError as fault:
            if hasattr(found, "__iter__"):
                raise
            raise Wrong(f"It returned {type(found).__name__}: return {what}.") from fault
    if len(elements) > most:
        raise Wrong(f"It gives more than {most} elements, and there are no more.")
    return elements


def _once(ids: Iterable[Any], wanted: Iterable[Any], where: str, what: str = "example") -> None:
    """Each of the wanted ones is there once."""
    counts = Counter(ids)
    wanted = list(wanted)
    for one in wanted:
        if counts[one] != 1:
            times = "never comes" if not counts[one] else f"comes {counts[one]} times"
            raise Wrong(f"{where}, {what} {one} {times}. It must come once.")
    if others := counts.keys() - set(wanted):
        raise Wrong(f"{where}, {what} {min(others)} comes, which is none of them.")


# The pipeline: reads that overlap, and batches that are ready before they are asked for.


def _watch_pipeline(called: Any, answer: Any, examples: int, batch: int, parallel: int) -> Any:
    tf = import_tensorflow()
    state, under_way, most, begun, ended, waits = threading.Condition(), 0, 0, 0, 0, True

    def body(name: bytes) -> Any:
        nonlocal under_way, most, begun, ended, waits
        number = int(name.decode().rpartition("-")[2])
        with state:
            under_way, begun = under_way + 1, begun + 1
            most = max(most, under_way)
            state.notify_all()
            if waits and not state.wait_for(lambda: most >= parallel, PATIENCE):
                waits = False
            if number == 0 and most > 1:  # whoever does not keep the order gives it later
                state.wait_for(lambda: ended > 0, PATIENCE)
            under_way, ended = under_way - 1, ended + 1
            state.notify_all()
        return np.array([number, number / 2], np.float32)

    def read(name: Any) -> Any:
        found = tf.numpy_function(body, [name], tf.float32)
        found.set_shape([2])
        return found

    names = [f"image-{number}" for number in range(examples)]
    dataset = called(names, read, batch, parallel)
    if dataset is None or dataset is ...:
        raise Unanswered
    if not isinstance(dataset, tf.data.Dataset):
        raise Wrong(f"It returned a {type(dataset).__name__}: return a tf.data.Dataset.")
    options = tf.data.Options()
    options.threading.private_threadpool_size = 16  # a read that waits keeps a thread
    options.experimental_optimization.inject_prefetch = False  # tf.data would repair both
    options.experimental_optimization.map_and_batch_fusion = False
    with _of(answer):
        iterator = iter(dataset.with_options(options))
        batches = list(itertools.islice(iterator, 1))
        wanted = min(examples, 2 * batch)
        with state:
            ahead = state.wait_for(lambda: begun >= wanted, PATIENCE)
            waits = False
        batches += list(itertools.islice(iterator, examples))
    try:
        found = [one.numpy()[:, 0].astype(int).tolist() for one in batches]
    except (AttributeError, IndexError, TypeError):
        raise Wrong("An element must be a batch, an array of (batch, 2) numbers.") from None
    return found, most, ahead


watch_pipeline = _observer(_watch_pipeline)


def _judge_pipeline(examples: int, batch: int, parallel: int, seen: Any) -> None:
    found, most, ahead = seen
    _once([one for each in found for one in each], range(examples), "In an epoch")
    if [one for each in found for one in each] != list(range(examples)):
        raise Wrong(
            "The examples do not come in the order of their names. A parallel map keeps it unless "
            "deterministic=False; and do not shuffle here."
        )
    sizes = [len(each) for each in found]
    if sizes != [min(batch, examples - first) for first in range(0, examples, batch)]:
        raise Wrong(f"With {examples} names and batch={batch} the batches have {sizes} examples.")
    if most < parallel:
        raise Wrong(
            f"At most {most} read{'s' * (most > 1)} {'were' if most > 1 else 'was'} under way at "
            f"once, and parallel={parallel} could be. Give map num_parallel_calls."
        )
    if not ahead:
        raise Wrong(
            "While the first batch is used, the second is not read: it waits until somebody asks "
            "for it. Prefetch whole batches, as the last step of the chain."
        )


# 40 examples and 8 in a batch: what a parallel map keeps of its own is less than a batch.
pipeline = observing(watch_pipeline, _judge_pipeline, (40, 8, 2), (21, 8, 4), (16, 8, 3))


# The buffer of a shuffle.


def _watch_shuffle(called: Any, answer: Any, examples: int, size: int, seed: int) -> Any:
    read = 0

    def stream() -> Iterator[int]:
        nonlocal read
        for one in range(examples):
            read += 1
            yield one

    found = called(stream(), size, np.random.default_rng(seed))
    if found is None or found is ...:
        raise Unanswered
    ids: list[int] = []
    ahead = 0
    with _of(answer):
        if not hasattr(found, "__iter__"):
            raise Wrong(f"It returned {type(found).__name__}. Yield the elements one by one.")
        for one in found:
            ahead = max(ahead, read - len(ids))  # before this one was given
            ids.append(int(one))
            if len(ids) > examples:
                break
    return ids, ahead


def _watch_shuffles(called: Any, answer: Any, examples: int, size: int, runs: int) -> Any:
    return [_watch_shuffle(called, answer, examples, size, seed) for seed in range(runs)]


watch_shuffles = _observer(_watch_shuffles)


def _judge_shuffles(examples: int, size: int, runs: int, seen: Any) -> None:
    where = f"With {examples} elements and size={size}"
    for ids, ahead in seen:
        _once(ids, range(examples), where, "element")
        if ahead > size + 1:
            raise Wrong(
                f"{where}, {ahead} elements were read before the first was given. Keep `size` of "
                "them in the buffer, because the stream may have no end."
            )
        if early := [one for place, one in enumerate(ids) if one - place > size - 1]:
            raise Wrong(
                f"{where}, element {early[0]} comes at place {ids.index(early[0])}. Of `size` "
                "elements in the buffer none can come `size` places early."
            )
    orders = [tuple(ids) for ids, _ in seen]
    if size == 1 or examples < 2:
        return
    if len(set(orders)) == 1:
        raise Wrong(f"{where} the order is always the same. Draw from rng.")
    window = min(size, examples)
    firsts = Counter(ids[0] for ids in orders)
    lasts = [ids[1 - window :] for ids in orders]  # one of them may have been given before
    expected = runs / window
    if any(abs(firsts[one] - expected) > 6 * expected**0.5 for one in range(window)):
        raise Wrong(
            f"{where}, the first element should be each of the first {window} equally often, and "
            f"it was {dict(sorted(firsts.items()))} times. Choose uniformly among the whole buffer."
        )
    if window > 2 and sum(list(one) == sorted(one) for one in lasts) > runs / 2:
        raise Wrong(
            f"{where}, the last {window} elements come in order. When the stream has ended, go on "
            "drawing from the buffer until it is empty."
        )
    if examples > 3 * size:
        late = sum(place - one > 2 * size for ids in orders for place, one in enumerate(ids))
        crossed = sum(
            one // size != place // size for ids in orders for place, one in enumerate(ids)
        )
        if not crossed:
            raise Wrong(
                f"{where}, blocks of {size} are mixed, each for itself. Refill the buffer after "
                "each element, and not when it is empty."
            )
        if not late:
            raise Wrong(
                f"{where}, no element ever comes late. Each time choose among the whole buffer."
            )


shuffle = observing(
    watch_shuffles, _judge_shuffles, (7, 1, 3), (4, 4, 600), (3, 10, 600), (60, 5, 400), (0, 3, 1)
)


# Records of one file, over ranks and workers: each once, and no byte more.


def _watch_records(
    called: Any, answer: Any, records: int, size: int, ranks: int, workers: int
) -> Any:
    content = np.random.default_rng(records).integers(0, 256, (records, size), np.uint8)
    content[:, :2] = np.arange(records, dtype=">u2").view(np.uint8).reshape(-1, 2)
    disk, readers = storage.disk("100 GB/s"), []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "records")
        path.write_bytes(content.tobytes())
        for rank, worker in itertools.product(range(ranks), range(workers)):
            disk.reset()
            with disk.open(path, buffer=0) as file:
                found = called(file, records, size, rank, ranks, worker, workers)
                taken = _taken(answer, found, records, "a list of records")
            mine = []
            for one in taken:
                if not isinstance(one, bytes | bytearray | memoryview):
                    raise Wrong(f"A record is {type(one).__name__}: return what file.read gives.")
                number = int.from_bytes(bytes(one[:2]), "big")
                right = number < records and bytes(one) == content[number].tobytes()
                mine.append(number if right else -1)
            readers.append((mine, disk.bytes))
    return readers


watch_records = _observer(_watch_records)


def _judge_records(records: int, size: int, ranks: int, workers: int, readers: Any) -> None:
    where = (
        f"With {records} records, {ranks} rank{'s' * (ranks > 1)} and {workers} "
        f"worker{'s' * (workers > 1)} in each"
    )
    for mine, _ in readers:
        if -1 in mine:
            raise Wrong(
                f"{where}, a piece of {size} bytes is no record. Record i begins at byte i * size."
            )
    each = [mine for mine, _ in readers]
    for rank in range(ranks):
        of_rank = each[rank * workers : (rank + 1) * workers]
        if workers > 1 and of_rank[0] and all(one == of_rank[0] for one in of_rank):
            raise Wrong(f"{where}, all workers of a rank read the same. Shard over both.")
        if ranks > 1 and rank and each[0] and of_rank[0] == each[0]:
            raise Wrong(f"{where}, all ranks read the same. Shard over ranks and workers.")
    _once([one for mine in each for one in mine], range(records), where, "record")
    if max(map(len, each)) - min(map(len, each)) > 1:
        raise Wrong(
            f"{where}, one worker reads {min(map(len, each))} records and another "
            f"{max(map(len, each))}. No two may differ by more than one."
        )
    for mine, read in readers:
        if read > len(mine) * size:
            raise Wrong(
                f"{where}, a worker got {read:,} bytes from the disk for {len(mine) * size:,} that "
                "it uses. Seek to your own records, and read no others."
            )


records = observing(
    watch_records, _judge_records, (12, 40, 3, 2), (13, 40, 2, 2), (10, 8, 1, 1), (3, 16, 4, 1),
    (23, 100, 1, 4), (17, 30, 3, 1),
)  # fmt: skip


# Epochs: each example once over the ranks, decoded once, augmented anew, in a new order.


def _watch_epochs(called: Any, answer: Any, examples: int, batch: int, ranks: int) -> Any:
    tf = import_tensorflow()
    return [_watch_rank(tf, called, answer, examples, batch, rank, ranks) for rank in range(ranks)]


def _watch_rank(
    tf: Any, called: Any, answer: Any, examples: int, batch: int, rank: int, ranks: int
) -> Any:
    decoded, drawn = [], 0

    def note_decoded(number: Any) -> Any:
        decoded.append(int(number))
        return np.float32(number)

    def draw(example: Any) -> Any:
        nonlocal drawn
        drawn += 1
        return np.array([example, drawn], np.float32)

    def shaped(function: Any, given: Any, shape: list[int]) -> Any:
        found = tf.numpy_function(function, [given], tf.float32)
        found.set_shape(shape)
        return found

    dataset = called(
        np.arange(examples), lambda one: shaped(note_decoded, one, []),
        lambda one: shaped(draw, one, [2]), batch, rank, ranks,
    )  # fmt: skip
    if dataset is None or dataset is ...:
        raise Unanswered
    if not isinstance(dataset, tf.data.Dataset):
        raise Wrong(f"It returned a {type(dataset).__name__}: return a tf.data.Dataset.")
    epochs = []
    for _ in range(3):
        begin = len(decoded)
        batches = _taken(answer, dataset, examples, "a tf.data.Dataset")
        try:
            pairs = [one.numpy().reshape(len(one), 2).astype(int).tolist() for one in batches]
        except (AttributeError, TypeError, ValueError):
            raise Wrong("An element must be a batch of what augment has returned.") from None
        epochs.append((pairs, len(decoded) - begin))
    return epochs


watch_epochs = _observer(_watch_epochs)


def _judge_epochs(examples: int, batch: int, ranks: int, seen: Any) -> None:
    where = f"With {examples} examples on {ranks} rank{'s' * (ranks > 1)}"
    if any(len(one) > batch for epochs in seen for pairs, _ in epochs for one in pairs):
        raise Wrong(f"A batch has more than {batch} examples.")
    for epoch in range(3):
        ids = [one for epochs in seen for part in epochs[epoch][0] for one, _ in part]
        shards = [[one for part in epochs[epoch][0] for one, _ in part] for epochs in seen]
        if ranks > 1 and len(ids) > examples and all(len(one) == examples for one in shards):
            raise Wrong(f"{where}, every rank gets all examples. Shard them.")
        _once(ids, range(examples), f"{where}, in epoch {epoch + 1}")
    for epochs in seen:
        _judge_rank(where, batch, epochs)


def _judge_rank(where: str, batch: int, epochs: Any) -> None:
    orders = [[one for part in pairs for one, _ in part] for pairs, _ in epochs]
    draws = [[drawn for part in pairs for _, drawn in part] for pairs, _ in epochs]
    together = [{frozenset(one for one, _ in part) for part in pairs} for pairs, _ in epochs]
    if batch > 1 and len(orders[0]) >= 12 and together[0] == together[1] and orders[0] != orders[1]:
        raise Wrong("Each epoch has the same batches in another order. Shuffle before batch.")
    sizes = [len(part) for part in epochs[0][0]]
    if sizes != [min(batch, len(orders[0]) - at) for at in range(0, len(orders[0]), batch)]:
        raise Wrong(f"{where} and batch={batch}, a rank's batches have {sizes} examples.")
    if set(draws[0]) & set(draws[1]):
        raise Wrong(
            "In the second epoch the augmented examples of the first come again. What is "
            "random must come after cache."
        )
    first, *later = (count for _, count in epochs)
    if first > len(orders[0]):
        raise Wrong(
            f"{where}, a rank decodes {first} examples and uses {len(orders[0])}. Shard before "
            "the expensive step."
        )
    if any(later):
        raise Wrong(
            "Every epoch decodes anew. Decoding always gives the same, so cache what it gives."
        )
    if len(orders[0]) < 12:
        return
    if orders[0] == orders[1]:
        raise Wrong(
            "The order is the same in each epoch. Shuffle after cache, and let shuffle reorder "
            "each iteration."
        )
    places = np.argsort(np.argsort(orders, axis=1), axis=1)  # among the rank's own
    early = int((places - np.arange(len(orders[0]))).max())
    if early < 0.5 * len(orders[0]):
        raise Wrong(
            f"In three epochs no example came more than {early} places early, so the buffer of "
            "shuffle is too small. It must hold all examples of the rank."
        )


epochs = observing(watch_epochs, _judge_epochs, (60, 7, 1), (101, 5, 2), (10, 4, 3))


# From an epoch and a step: the same batches after a restart.


def _watch_from_step(
    called: Any, answer: Any, examples: int, batch: int, seed: int, epoch: int, step: int
) -> Any:
    read: list[int] = []

    def read_one(number: Any) -> str:
        if not 0 <= int(number) < examples:
            raise Wrong(f"read({number}) was called, and there are {examples} examples.")
        read.append(int(number))
        return f"example {int(number)}"

    np.random.seed(len(read) + step)  # noqa: NPY002 (what an answer must not depend on)
    found = called(read_one, examples, batch, seed, epoch, step)
    batches = []
    for one in _taken(answer, found, examples + 1, "the batches"):
        part = _taken(answer, one, examples, "a list for each batch")
        if not all(isinstance(each, str) and each.startswith("example ") for each in part):
            raise Wrong("A batch is a list of what read(i) returned for its examples.")
        batches.append([int(each.rpartition(" ")[2]) for each in part])
    return batches, len(read)


def _watch_restarts(called: Any, answer: Any, examples: int, batch: int) -> Any:
    steps, watch = -(-examples // batch), partial(_watch_from_step, called, answer, examples, batch)
    whole = [watch(seed, epoch, 0) for seed, epoch in ((5, 0), (5, 1), (6, 0), (5, 0))]
    return whole, [watch(5, 1, step) for step in range(steps + 1)]


watch_restarts = _observer(_watch_restarts)


def _judge_restarts(examples: int, batch: int, seen: Any) -> None:
    (first, second, other, again), tails = seen
    where = f"With {examples} examples in batches of {batch}"
    for batches, _ in (first, second):
        _once([one for each in batches for one in each], range(examples), f"{where}, in an epoch")
        sizes = [len(each) for each in batches]
        if sizes != [min(batch, examples - at) for at in range(0, examples, batch)]:
            raise Wrong(f"{where}, the batches have {sizes} examples.")
    if first[0] != again[0]:
        raise Wrong(
            "Called twice with the same seed and epoch, it gives two orders. A program that is "
            "started again must find the same: draw the order from seed and epoch."
        )
    flat = [one for each in first[0] for one in each]
    if examples > 12:
        if flat == sorted(flat):
            raise Wrong("The examples come in order. Shuffle them.")
        if first[0] == second[0]:
            raise Wrong("Each epoch has the same order. Draw it from seed and epoch.")
        if first[0] == other[0]:
            raise Wrong("Two seeds give the same order.")
        parts = [sorted(map(sorted, batches)) for batches, _ in (first, second)]
        if 1 < batch < examples and parts[0] == parts[1]:
            raise Wrong("Each epoch has the same batches in another order. Shuffle the examples.")
    for step, (batches, read) in enumerate(tails):
        if batches != second[0][step:]:
            rest = [one for each in batches for one in each]
            done = {one for each in second[0][:step] for one in each}
            repeated = sum(one in done for one in rest)
            lost = examples - len(done) - len(set(rest) - done)
            raise Wrong(
                f"{where}, started again at step {step}, it repeats {repeated} examples and loses "
                f"{lost}, or changes the order. It must give batch {step} of the same order and "
                "all that follow."
            )
        if read > sum(map(len, batches)):
            raise Wrong(
                f"{where}, started again at step {step}, it reads {read} examples and gives "
                f"{sum(map(len, batches))}. Skip numbers, and not what was read."
            )


from_step = observing(watch_restarts, _judge_restarts, (50, 8), (24, 4), (13, 20), (5, 1))


# A checkpoint of the iterator.


def _watch_checkpoints(called: Any, answer: Any, examples: int, batch: int, steps: Any) -> Any:
    tf, runs = import_tensorflow(), []

    def make() -> Any:
        dataset = tf.data.Dataset.range(100, 100 + examples).shuffle(examples)
        return dataset.batch(batch)

    with tempfile.TemporaryDirectory() as folder:
        for count in steps:
            found = called(make, folder, count)
            batches = _taken(answer, found, examples + 1, "the list of batches")
            try:
                runs.append([[int(one) - 100 for one in each] for each in batches])
            except (TypeError, ValueError):
                raise Wrong("Return the list of the batches that this run has taken.") from None
    return runs


watch_checkpoints = _observer(_watch_checkpoints)


def _judge_checkpoints(examples: int, batch: int, steps: Any, runs: Any) -> None:
    left = -(-examples // batch)
    seen: list[int] = []
    for number, (count, batches) in enumerate(zip(steps, runs, strict=True), 1):
        wanted, left = min(count, left), max(0, left - count)
        ids = [one for each in batches for one in each]
        where = f"With {examples} examples in batches of {batch} and runs of {list(steps)} steps"
        if repeated := sorted({one for one in ids if one in seen}):
            raise Wrong(
                f"{where}, run {number} gives {len(repeated)} examples that an earlier run has had "
                f"({', '.join(map(str, repeated[:3]))}). Restore the iterator before its first "
                "batch, and save it after the last. (make_dataset() shuffles anew each time, so "
                "skipping batches of a new dataset does not help.)"
            )
        if len(batches) != wanted:
            raise Wrong(f"{where}, run {number} gives {len(batches)} batches and not {wanted}.")
        seen += ids
    _once(seen, range(examples), "In all runs together")


checkpoint = observing(
    watch_checkpoints, _judge_checkpoints,
    *((26, 4, (first, 9 - first)) for first in range(8)), (25, 5, (2, 1, 1, 3, 2)),
)  # fmt: skip
