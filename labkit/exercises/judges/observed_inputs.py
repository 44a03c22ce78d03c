"""What an answer of lecture 37 reads, gives and lets overlap, observed and not judged.

`labkit grade` does this in the process of the answer, which knows no truth. Nothing is timed: reads
wait for each other where a right pipeline lets them.
"""

import itertools
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import Any

import numpy as np

from labkit import storage
from labkit.exercises.blanks import raised
from labkit.exercises.judges.answers import function
from labkit.exercises.task import Wrong
from labkit.hardware.devices import import_tensorflow
from labkit.kinds import LabError

PATIENCE = 5.0  # seconds until a read that waits for another one takes it that none comes
SECONDS = 60.0


def _observer(watch: Callable[..., Any]) -> Callable[..., Any]:
    """`watch(answer, *case)` with the time limit of a judge."""

    @wraps(watch)  # its name, by which `labkit grade` finds it in another process
    def observe(answer: Any, *case: Any) -> Any:
        found: list[Any] = []
        function(lambda called: found.append(watch(called, answer, *case)), SECONDS)(answer)
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


@_observer
def watch_pipeline(called: Any, answer: Any, examples: int, batch: int, parallel: int) -> Any:
    """The batches, how many reads were under way at once, and whether the second batch was read."""
    tf = import_tensorflow()
    state, under_way, most, begun, ended, waits = threading.Condition(), 0, 0, 0, 0, True

    def body(name: Any) -> Any:
        nonlocal under_way, most, begun, ended, waits
        number = int(str(np.asarray(name, np.str_)).rpartition("-")[2])
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


def _watch_shuffle(called: Any, answer: Any, examples: int, size: int, seed: int) -> Any:
    read = 0

    def stream() -> Iterator[int]:
        nonlocal read
        for one in range(examples):
            read += 1
            yield one

    found = called(stream(), size, np.random.default_rng(seed))
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


@_observer
def watch_shuffles(called: Any, answer: Any, examples: int, size: int, runs: int) -> Any:
    """For each seed the order, and how many elements were read before; seed 0 comes twice."""
    return [_watch_shuffle(called, answer, examples, size, seed) for seed in (*range(runs), 0)]


@_observer
def watch_records(
    called: Any, answer: Any, records: int, size: int, ranks: int, workers: int
) -> Any:
    """For each reader the numbers of its records, -1 for what is none, and the bytes it read."""
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


@_observer
def watch_epochs(called: Any, answer: Any, examples: int, batch: int, ranks: int) -> Any:
    """For each rank and epoch the batches, as pairs of number and draw, and what was decoded."""
    tf = import_tensorflow()
    return [_watch_rank(tf, called, answer, examples, batch, rank, ranks) for rank in range(ranks)]


def _watch_rank(
    tf: Any, called: Any, answer: Any, examples: int, batch: int, rank: int, ranks: int
) -> Any:
    decoded, drawn, whole = list[int](), 0, True

    def note_decoded(number: Any) -> Any:
        nonlocal whole
        whole = whole and np.ndim(number) == 0
        decoded.append(int(np.ravel(number)[0]))
        return np.float32(np.ravel(number)[0])

    def draw(example: Any) -> Any:
        nonlocal drawn, whole
        whole = whole and np.ndim(example) == 0
        drawn += 1
        return np.array([np.ravel(example)[0], drawn], np.float32)

    def shaped(function: Any, given: Any, shape: list[int]) -> Any:
        found = tf.numpy_function(function, [given], tf.float32)
        found.set_shape(shape)
        return found

    dataset = called(
        np.arange(examples), lambda one: shaped(note_decoded, one, []),
        lambda one: shaped(draw, one, [2]), batch, rank, ranks,
    )  # fmt: skip
    if not isinstance(dataset, tf.data.Dataset):
        raise Wrong(f"It returned a {type(dataset).__name__}: return a tf.data.Dataset.")
    epochs = []
    for _ in range(3):
        begin = len(decoded)
        batches = _taken(answer, dataset, examples, "a tf.data.Dataset")
        if not whole:
            raise Wrong("decode and augment take one example each: map them before batch.")
        try:
            pairs = [one.numpy().reshape(len(one), 2).astype(int).tolist() for one in batches]
        except (AttributeError, TypeError, ValueError):
            raise Wrong("An element must be a batch of what augment has returned.") from None
        epochs.append((pairs, len(decoded) - begin))
    return epochs


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


@_observer
def watch_restarts(called: Any, answer: Any, examples: int, batch: int) -> Any:
    """Four whole epochs, and one that begins at each step: batches, and how many were read."""
    steps, watch = -(-examples // batch), partial(_watch_from_step, called, answer, examples, batch)
    whole = [watch(seed, epoch, 0) for seed, epoch in ((5, 0), (5, 1), (6, 0), (5, 0))]
    return whole, [watch(5, 1, step) for step in range(steps + 1)]


@_observer
def watch_checkpoints(called: Any, answer: Any, examples: int, batch: int, steps: Any) -> Any:
    """The batches of each run, with the numbers of examples."""
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
