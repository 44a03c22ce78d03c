"""Judges of lecture 37: which examples were seen, what overlapped, which bytes were read.

`judges.observed_inputs` tells what an answer does; here that is judged, and nothing is timed.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from labkit.exercises.judges.answers import beside, judged
from labkit.exercises.judges.observed_inputs import (
    watch_checkpoints,
    watch_epochs,
    watch_pipeline,
    watch_records,
    watch_restarts,
    watch_shuffles,
)
from labkit.exercises.task import Wrong


def observing(observe: Callable[..., Any], judge: Callable[..., None], *cases: Any) -> Any:
    """The judge of a function: `judge` gets what `observe` saw in each case."""

    def examine(answer: Any) -> None:
        for case in cases:
            judge(*case, beside(answer, observe, *case))

    return judged(examine)


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
            "While the first batch is used, the second is not read: that begins only when the loop "
            "asks for it. Prefetch whole batches, as the last step of the chain."
        )


# 40 examples and 8 in a batch: what a parallel map keeps of its own is less than a batch.
pipeline = observing(watch_pipeline, _judge_pipeline, (40, 8, 2), (21, 8, 4), (16, 8, 3))


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
        raise Wrong(f"{where} the order is always the same. Draw from rng, also at the end.")
    if examples > 20 and orders.pop() != orders[0]:  # both drew from the same seed
        raise Wrong(
            f"{where} the same seed gives two orders. Draw from rng, and from nothing else."
        )
    window = min(size, examples)
    firsts = Counter(ids[0] for ids in orders)
    lasts = [ids[1 - window :] for ids in orders]  # one of them may have been given before
    expected = runs / window
    if any(abs(firsts[one] - expected) > 6 * expected**0.5 for one in range(window)):
        raise Wrong(
            f"{where}, the first element should be each of the first {window} equally often, and "
            f"it was {dict(sorted(firsts.items()))} times. Choose uniformly among the whole buffer."
        )
    if window > 3 and sum(list(one) == sorted(one) for one in lasts) > runs / 2:
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
    watch_shuffles, _judge_shuffles, (7, 1, 3), (60, 5, 400), (4, 4, 600), (3, 10, 600), (0, 3, 1)
)


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
            raise Wrong(
                f"{where}, run {number} gives {len(batches)} batches and not {wanted}. A batch "
                "that is taken from the iterator and not returned is lost."
            )
        seen += ids
    _once(seen, range(examples), "In all runs together")


checkpoint = observing(
    watch_checkpoints, _judge_checkpoints,
    *((26, 4, (first, 9 - first)) for first in range(8)), (25, 5, (2, 1, 1, 3, 2)),
)  # fmt: skip
