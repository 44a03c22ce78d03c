"""The judge of a program: run on several numbers of ranks, proved, counted, and shown."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from labkit.exercises.judges.answers import judged
from labkit.exercises.task import Wrong
from labkit.kinds import LabError, bytes_text

if TYPE_CHECKING:
    from labkit.collectives import Trace

BLOCKS = ("reduce", "broadcast", "reduce_scatter", "all_gather", "gather", "scatter", "all_to_all")
TIME_LIMIT = 10.0  # seconds; a program of an exercise is done in milliseconds
NOT_ADDED = (
    "No chunk ever held two ranks' contributions: part += received adds in place, and "
    "part = part + received makes a new array.\n"
)
UNCHANGED = "No buffer has changed: buffer = x gives x that name, buffer[:] = x writes into it.\n"
MEAN = "That is the mean of the arrays; the task is their sum.\n"
NO_MESSAGE = "No rank has sent a message.\n"
ALONE = "A single rank has nothing to send or to add: there n - 1 is 0.\n"
BY_ALL = "All ranks must call the same programs, in the same order, with the same root.\n"


def program(
    collective: str,
    too_much: Callable[[Trace], Iterable[str]] = lambda trace: (),
    *,
    may_call: Sequence[str] = (),
    ranks: tuple[int, ...] = (2, 3, 4, 5, 8, 1),
    elements: Callable[[int], tuple[int, ...]] | None = None,
    shown: int = 8,
) -> Callable[[Any], Trace]:
    """A function of (comm, buffer) that must be the collective on all these ranks and elements.

    Only then does `too_much` say what is too much in these runs, first in that on `shown` ranks.
    Of MPI's collectives and labkit's programs it may call those of `may_call`, such as "reduce",
    and the one that is asked for only among some of the ranks.
    """

    def sizes(count: int) -> tuple[int, ...]:
        if elements:
            return elements(count)
        # Each rank has as much for each other one in an all-to-all.
        return (count, 2 * count) if collective == "all_to_all" else (count, 2 * count + 1, 1)

    def prove(answer: Any) -> Trace:
        runs = [_prove(answer, collective, count, size) for count in ranks for size in sizes(count)]
        runs.sort(key=lambda trace: trace.ranks != shown)
        for trace in runs:
            refuse_library(trace, collective, may_call)
        for trace in runs:
            if faults := list(too_much(trace)):
                text = f"It is correct. But on {trace.ranks} ranks {' And '.join(faults)}"
                raise Wrong(text, trace)
        return runs[0]

    return judged(prove, 6 * TIME_LIMIT)


def more_bytes_than_a_ring(trace: Trace) -> Iterator[str]:
    """What is too much where a ring would send less."""
    run, packed = long_if_packed(trace)
    chunk = math.ceil(run.inputs[0].size / run.ranks) * run.inputs[0].itemsize
    ring = 2 * (run.ranks - 1) * chunk
    if max(run.bytes_sent) > ring * (1.25 if packed else 1):
        busiest = bytes_text(max(run.bytes_sent))
        yield f"the busiest rank sends {busiest}; {bytes_text(ring)} are enough, in chunks."


def long_if_packed(trace: Trace) -> tuple[Any, bool]:
    """Pickle adds some bytes to each message: few, in a run on arrays 1000 times as long."""
    packed = any(call.name.islower() for call in trace.calls)
    return trace.again([trace.inputs[0].repeat(1000)] * trace.ranks) if packed else trace, packed


def _run(answer: Callable[..., Any], ranks: int, size: int) -> Trace:
    import numpy as np

    from labkit import collectives

    whole = np.arange(1.0, ranks * size + 1).reshape(ranks, size)
    return collectives.run(answer, list(whole), timeout=TIME_LIMIT)


def _prove(answer: Callable[..., Any], collective: str, ranks: int, size: int) -> Trace:
    trace = None
    try:
        trace = _run(answer, ranks, size)
        verdict = trace.check(collective)
    except LabError as fault:
        by_all = BY_ALL if re.search(r"Deadlock.* of programs\.py", f"{fault}") else ""
        text = f"On {ranks} rank{'s' * (ranks > 1)}: {fault}\n{by_all}{ALONE * (ranks == 1)}"
        raise Wrong(text.rstrip(), trace) from None
    if not verdict:
        unchanged = all((a == b).all() for a, b in zip(trace.inputs, trace.outputs, strict=True))
        told = "buffer[:]" in str(verdict)
        hint = UNCHANGED if unchanged and not told else ""
        hint += NO_MESSAGE * (ranks > 1 and not trace.messages)
        if "reduce" in collective and not unchanged:
            changes = trace.contributions().changes
            alone = trace.messages and all(sum(one.counts or ()) == 1 for one in changes)
            hint = NOT_ADDED if alone else ""
            if all((ranks * one == sum(trace.inputs)).all() for one in trace.outputs):
                hint = MEAN
        text = f"{verdict}\n{hint}{ALONE * (ranks == 1)}"
        shown = replace(trace, faults=verdict.faults)
        raise Wrong(f"{text}Each rank had {size} element{'s' * (size > 1)}.", shown)
    if size >= ranks > 1 and not any(trace.bytes_sent):
        raise Wrong("No rank has sent a byte: ranks share no memory, so data travels in messages.")
    return trace


def refuse_library(trace: Trace, collective: str, may_call: Sequence[str] = ()) -> None:
    """Refuse a program that calls the library where it is to be written."""
    from labkit.collectives.library import MEANING

    for name, ranks in sorted({call.library for call in trace.calls if call.library}):
        meaning = MEANING.get(name, "barrier")
        asked = meaning == collective and ranks == trace.ranks
        if meaning != "barrier" and (asked or meaning not in may_call):
            text = "Write it yourself from messages: Send, Recv, Sendrecv, Isend, Irecv."
            if asked and may_call:
                text = f"Write the {collective} yourself, from other collectives."
            raise Wrong(f"The result is right, but the library's {name} made it. {text}", trace)
