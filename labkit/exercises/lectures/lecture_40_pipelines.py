"""What answers of lecture 40 are judged by: pipelines, and the transformer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import accumulate
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from labkit.exercises.judges.answers import function
from labkit.exercises.judges.model_parallel import sends_before
from labkit.exercises.task import Wrong
from labkit.kinds import LabError

if TYPE_CHECKING:
    from labkit.collectives import Trace
    from labkit.pipelines import Timeline

SIZES = ((2, 2), (4, 8), (3, 7), (1, 3), (5, 2), (8, 16))  # stages, micro-batches
Fault: TypeAlias = tuple[str, float]  # what is wrong with a timeline, and at which time


def rows(
    faults: Callable[[Timeline], Iterator[Fault]],
    sizes: tuple[tuple[int, int], ...] = SIZES,
    weight: float | None = None,
) -> Callable[[Any], Timeline]:
    """A function of (stages, micro_batches) that returns rows; the timeline of 4 and 8 is shown.

    The schedule must be possible, and `faults` finds none. F takes 1 and B 2; with W, all take 1.
    A wrong timeline opens at its fault.
    """

    def examine(mine: Callable[..., Any]) -> Timeline:
        from labkit import pipelines

        shown = {}

        for stages, count in sizes:
            size = f"With stages={stages} and micro_batches={count}"
            found = mine(stages, count)
            try:
                schedule = pipelines.Schedule(found, name="your schedule")
            except LabError as fault:
                raise Wrong(f"{size}: {fault}") from None
            if (schedule.stages, schedule.micro_batches) != (stages, count):
                has = f"{schedule.stages} rows and {schedule.micro_batches} micro-batches"
                raise Wrong(f"{size}: it returned {has}.")
            backward = 2.0 if weight is None else 1.0
            timeline = schedule.timeline(1.0, backward, weight=weight)
            for fault_text, time in faults(timeline):
                raise Wrong(f"{size}: {fault_text}", replace(timeline, opens=time))
            shown[stages, count] = timeline
        return shown[4, 8]

    return function(examine)


def no_gpipe(t: Timeline) -> Iterator[Fault]:
    """Backward before all forwards, or a longer bubble."""
    for rank, row in enumerate(t.schedule.rows):
        kinds = [piece[0] for piece in row]
        if kinds != sorted(kinds, reverse=True):  # F before B
            m = row[at := kinds.index("B")][1]
            text = f"rank {rank} begins B of micro-batch {m} before its last F."
            yield text, t.starts[rank][at]
    yield from _too_long(t, 3 * (t.schedule.stages - 1))


def _too_long(t: Timeline, bubble: float) -> Iterator[Fault]:
    if t.bubble > bubble + 1e-9:
        rows = zip(t.ends, t.starts, strict=True)
        waits = [
            (b - a, a) for ends, starts in rows for a, b in zip(ends, starts[1:], strict=False)
        ]
        yield f"the bubble is {t.bubble:g}; {bubble:g} is enough.", max(waits, key=itemgetter(0))[1]


def _holds(t: Timeline, most: list[int]) -> Iterator[Fault]:
    for rank, (held, enough) in enumerate(zip(t.peak_activations, most, strict=True)):
        if held > enough:
            until = "W" if t.schedule.has_weights else "B"
            changes = ({"F": 1, until: -1}.get(str(piece[0]), 0) for piece in t.schedule.rows[rank])
            at = next(n for n, count in enumerate(accumulate(changes)) if count > enough)
            verb = "is" if enough == 1 else "are"
            text = f"rank {rank} holds {held:g} micro-batches at its peak; {enough} {verb} enough."
            yield text, t.starts[rank][at]


def no_1f1b(t: Timeline) -> Iterator[Fault]:
    """More activations than one forward, one backward holds, or a longer bubble."""
    p, m = t.schedule.stages, t.schedule.micro_batches
    yield from _holds(t, [min(m, p - rank) for rank in range(p)])
    yield from _too_long(t, 3 * (p - 1))


def no_zero_bubble(t: Timeline) -> Iterator[Fault]:
    """W that is missing, more activations, or a longer bubble."""
    p = t.schedule.stages
    if not t.schedule.has_weights:
        yield "no row has a W. Without it, B is the whole backward pass and takes 2.", 0.0
    yield from _holds(t, [p] * p)
    yield from _too_long(t, p - 1)


def pipeline_program(answer: Any) -> Trace:
    """1F1B with a number for each micro-batch: the gradients of the product of all weights."""
    for ranks, count in ((2, 4), (3, 5), (1, 2)):
        _prove(answer, ranks, count)
    return _prove(answer, 4, 8)


def _prove(answer: Callable[..., Any], ranks: int, count: int) -> Trace:
    from labkit import collectives

    x = np.arange(1.0, count + 1)
    inputs = [x if rank == 0 else np.zeros(count) for rank in range(ranks)]
    size = f"On {ranks} rank{'s' * (ranks > 1)} with {count} micro-batches"
    try:
        trace = collectives.run(answer, inputs, timeout=10)
    except LabError as fault:
        raise Wrong(f"{size}: {fault}") from None
    product = np.prod(np.arange(ranks) + 2.0)
    for rank, found in enumerate(trace.outputs):
        right = x * product / (rank + 2)
        for m in np.flatnonzero(~np.isclose(found, right))[:1]:
            text = f"the weight's gradient of micro-batch {m} is {found[m]:g}, not {right[m]:g}"
            raise Wrong(
                f"{size}: on rank {rank} {text}: x times the weights of all other ranks.", trace
            )
    for rank in range(ranks - 1):
        ahead = sends_before(trace, rank, rank + 1)
        for m, sent in enumerate(ahead):
            most = min(count, m + ranks - rank)  # one less where a gradient is received first
            if not min(count, most - 1) <= sent <= most:
                order = "GPipe's order" if sent == count else "the next ranks wait"
                text = f"rank {rank} has sent {sent} activations when it has gradient {m}: {order}."
                raise Wrong(f"{size}: {text} In 1F1B it has sent {most}.", trace)
    return trace
