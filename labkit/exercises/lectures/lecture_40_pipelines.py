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
V_SIZES = ((1, 3), (2, 3), (4, 8), (3, 7), (5, 10), (8, 16))  # ranks, micro-batches
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


def v_path(answer: Callable[[int], Any]) -> None:
    """The (rank, chunk) of each stage of a V."""
    for ranks in (1, 2, 3, 5, 8):
        found = [tuple(map(int, one)) for one in answer(ranks)]
        if found == _v(ranks):
            continue
        where = f"With ranks={ranks}"
        if found == [(rank, chunk) for chunk in (0, 1) for rank in range(ranks)]:
            raise Wrong(
                f"{where}: that is the interleaved placement. Its second half begins on rank 0; on "
                f"a V it begins where the first half ends, on rank {ranks - 1}."
            )
        if len(found) != 2 * ranks:
            raise Wrong(f"{where}: it has {len(found)} stages, and {2 * ranks} are right.")
        pairs = enumerate(zip(found, _v(ranks), strict=True))
        stage, one, right = next((stage, a, b) for stage, (a, b) in pairs if a != b)
        raise Wrong(f"{where}: stage {stage} is {one}, and should be {right}.")


def _v(ranks: int) -> list[tuple[int, int]]:
    return [(r, 0) for r in range(ranks)] + [(r, 1) for r in reversed(range(ranks))]


def v_rows(answer: Callable[..., Any]) -> Timeline:
    """Rows on a V, in which F, B and W of a chunk take 1: makespan and chunks held at most."""
    from labkit import pipelines

    shown = {}
    for ranks, count in V_SIZES:
        size = f"With ranks={ranks} and micro_batches={count}"
        rows = answer(ranks, count)
        try:
            schedule = pipelines.Schedule(rows, "your schedule", paths=(tuple(_v(ranks)),))
        except LabError as fault:
            raise Wrong(f"{size}: {_v_reason(rows) or fault}") from None
        if (schedule.stages, schedule.micro_batches) != (ranks, count):
            has = f"{schedule.stages} rows and {schedule.micro_batches} micro-batches"
            raise Wrong(f"{size}: it returned {has}.")
        timeline = schedule.timeline(2.0, 2.0, weight=2.0)
        for text, time in _no_zb_v(timeline):
            raise Wrong(f"{size}: {text}", replace(timeline, opens=time))
        shown[ranks, count] = timeline
    return shown[4, 8]


def _v_reason(rows: Any) -> str:
    """Why rows cannot run on a V, if they are those of another placement."""
    from labkit import pipelines

    for rank, row in enumerate(rows):
        turn = {piece: place for place, piece in enumerate(map(tuple, row))}
        up, down = turn.get(("B", 0, 1)), turn.get(("B", 0, 0))
        if up is not None and down is not None and down < up:
            return (
                f"rank {rank} has B of micro-batch 0 of chunk 0 before that of chunk 1. The last "
                "stage, with the loss, is chunk 1 of rank 0: gradients pass chunk 1 of all ranks "
                "first, and then chunk 0."
            )
    try:
        pipelines.Schedule(rows)
    except LabError:
        return ""
    return (
        "these rows can run only if stage k is on rank k mod p. On a V, chunk 1 of rank r is stage "
        "2p - 1 - r: it takes its input from rank r + 1, and the last rank's from itself."
    )


def _no_zb_v(t: Timeline) -> Iterator[Fault]:
    p, m = t.schedule.stages, t.schedule.micro_batches
    if not t.schedule.has_weights:
        yield "no row has a W. Without it, B is the whole backward pass and takes 2.", 0.0
    for rank, row in enumerate(t.schedule.rows):
        changes = ({"F": 1, "W": -1}.get(str(piece[0]), 0) for piece in row)
        held = list(accumulate(changes))
        if max(held) > 2 * p:
            at = next(place for place, one in enumerate(held) if one > 2 * p)
            text = f"rank {rank} holds the activations of {max(held)} chunks at its peak"
            yield f"{text}; {2 * p} are enough.", t.starts[rank][at]
    if t.total > 6 * m + p - 1 + 1e-9:
        waits = [(b - a, a) for ends, starts in zip(t.ends, t.starts, strict=True)
                 for a, b in zip(ends, starts[1:], strict=False)]  # fmt: skip
        text = f"the step takes {t.total:g}; {6 * m + p - 1} are enough."
        yield text, max(waits, key=itemgetter(0))[1]


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
