"""The judge of a program: run on several numbers of ranks, proved, counted, and shown."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from labkit.exercises.judges.answers import judged
from labkit.exercises.task import Wrong
from labkit.kinds import LabError, bytes_text, seconds_text

if TYPE_CHECKING:
    from labkit.collectives import Trace

BLOCKS = ("reduce", "broadcast", "reduce_scatter", "all_gather", "gather", "scatter", "all_to_all")
TIME_LIMIT = 10.0  # seconds; a program of an exercise is done in milliseconds
NOT_ADDED = (
    "The sums are not in the buffer: part += received adds in place; part = part + received, and "
    "chunks[i] = chunks[i] + received, make new arrays, which the buffer does not see.\n"
)
HALF = (
    "Each element of the sum is finished, but on one rank only: the second half is missing, in "
    "which the finished chunks go to all other ranks (an all-gather; after a reduce a broadcast)."
)
UNCHANGED = "No buffer has changed: buffer = x gives x that name, buffer[:] = x writes into it.\n"
MEAN = "That is the mean of the arrays; the task is their sum.\n"
NO_MESSAGE = "No rank has sent a message.\n"
ALONE = "A single rank has nothing to send or to add, because there n - 1 is 0.\n"
BY_ALL = "All ranks must call the same programs, in the same order, with the same root.\n"


def program(
    collective: str,
    told: Callable[..., None] = lambda *_, **__: None,
    *,
    may_call: Sequence[str] = (),
    ranks: tuple[int, ...] = (2, 3, 4, 5, 8, 1),
    elements: Callable[[int], tuple[int, ...]] | None = None,
    shown: int = 8,
) -> Callable[[Any], Trace]:
    """A function of (comm, buffer) that must be the collective on all these ranks and elements.

    Only then is told what is too much in these runs, first in that on `shown` ranks. Of MPI's
    collectives and labkit's programs it may call those of `may_call`, such as "reduce", and the one
    that is asked for only among some of the ranks.
    """

    def sizes(count: int) -> tuple[int, ...]:
        if elements:
            return elements(count)
        # Each rank has as much for each other one in an all-to-all.
        return (count, 2 * count) if collective == "all_to_all" else (count, 2 * count + 1, 1)

    def prove(answer: Any) -> Trace:
        runs = [_prove(answer, collective, count, size) for count in ranks for size in sizes(count)]
        _prove(answer, collective, ranks[0], sizes(ranks[0])[1], "float32")  # gradients are
        runs.sort(key=lambda trace: trace.ranks != shown)
        for trace in runs:
            refuse_library(trace, collective, may_call)
        for trace in runs:
            correct = f"It is correct. But on {trace.ranks} ranks "
            facts = {"ranks": trace.ranks, "steps": trace.steps, "messages": trace.messages}
            told(trace, before=correct, joined=" And ", trace=trace, **facts)
        return runs[0]

    return judged(prove, 6 * TIME_LIMIT)


def more_bytes_than_a_ring(trace: Trace) -> str:
    """What is too much where a ring would send less."""
    run, packed = long_if_packed(trace)
    chunk = math.ceil(run.inputs[0].size / run.ranks) * run.inputs[0].itemsize
    ring = 2 * (run.ranks - 1) * chunk
    if max(run.bytes_sent) <= ring * (1.25 if packed else 1):
        return ""
    busiest = bytes_text(max(run.bytes_sent))
    return f"the busiest rank sends {busiest}; {bytes_text(ring)} are enough, in chunks."


def slower_than_doubling(trace: Trace) -> str:
    """What is too much where recursive halving and doubling would take less, modelled."""
    # So slow a link that 512 bytes take eight times as long as the latency.
    run, packed = long_if_packed(trace)
    seconds = float(run.cost(latency=1e-6, bandwidth=64e9 if packed else 64e6))
    steps = 2 * math.log2(trace.ranks)
    target = steps * 1e-6 + 2 * (1 - 1 / trace.ranks) * trace.inputs[0].nbytes / 64e6
    if seconds <= target * (1.01 if packed else 1.00005):
        return ""
    takes = f"it takes {seconds_text(seconds)} and {trace.steps} steps, modelled"
    return f"{takes}; the target is {seconds_text(target)}, {steps:.0f} steps."


def long_if_packed(trace: Trace) -> tuple[Any, bool]:
    """Returns a run whose bytes can be compared, and whether pickle has packed its messages.

    Pickle adds bytes to each message, which count little on arrays 1000 times as long.
    """
    packed = any(call.name.islower() for call in trace.calls)
    return trace.again([trace.inputs[0].repeat(1000)] * trace.ranks) if packed else trace, packed


def programs_in(trace: Trace) -> set[str]:
    """The programs that have made its calls."""
    sends = [call for call in trace.calls if call.begins]
    places = [call.place for call in sends if call.place and not call.library]
    names = {trace.sources[place.source].name for place in places}
    return names | {call.library[0] for call in sends if call.library}


def _run(answer: Callable[..., Any], ranks: int, size: int, dtype: str) -> Trace:
    import numpy as np

    from labkit import collectives

    whole = np.arange(1.0, ranks * size + 1, dtype=dtype).reshape(ranks, size)
    inputs = whole / 4 if dtype == "float32" else whole  # fractions, of which every sum is exact
    return collectives.run(answer, list(inputs), timeout=TIME_LIMIT)


def _prove(
    answer: Callable[..., Any], collective: str, ranks: int, size: int, dtype: str = "float64"
) -> Trace:
    import numpy as np

    from labkit.collectives.check import where_wrong

    trace, each = None, f"Each rank had {size} element{'s' * (size > 1)}"
    each += "." if dtype == "float64" else f", {dtype} with fractions."
    try:
        trace = _run(answer, ranks, size, dtype)
        verdict = trace.check(collective)
    except LabError as fault:
        by_all = BY_ALL if re.search(r"Deadlock.* of programs\.py", f"{fault}") else ""
        kind = f" with {dtype} arrays" * (dtype != "float64")
        text = f"On {ranks} rank{'s' * (ranks > 1)}{kind}: {fault}\n{by_all}{ALONE * (ranks == 1)}"
        raise Wrong(text.rstrip(), trace) from None
    if not verdict:
        unchanged = all((a == b).all() for a, b in zip(trace.inputs, trace.outputs, strict=True))
        told = "buffer[:]" in str(verdict)
        hint = UNCHANGED if unchanged and not told else ""
        hint += NO_MESSAGE * (ranks > 1 and not trace.messages)
        shown = replace(trace, faults=verdict.faults)
        if "reduce" in collective and not unchanged:
            total, outputs = sum(trace.inputs), np.stack(trace.outputs)
            on_one = collective == "all_reduce" and ((outputs == total).sum(axis=0) == 1).all()
            if on_one and trace.steps < ranks:
                raise Wrong(f"On {ranks} ranks: {HALF} {each}", shown)
            changes = trace.contributions().changes
            alone = trace.messages and all(sum(one.counts or ()) == 1 for one in changes)
            stays = (outputs == trace.inputs).any(axis=1).all()  # and its sums are elsewhere:
            if alone or (stays and any(one.sent_from is None for one in trace.messages)):
                hint = NOT_ADDED
            if (ranks * outputs == total).all():
                hint = MEAN
        wrong = where_wrong(shown.faults, shown.contributions(), shown.steps)[: ranks > 1]
        hint += "".join(f"First wrong: step {step}, rank {rank}.\n" for step, rank, _ in wrong)
        raise Wrong(f"{verdict}\n{hint}{ALONE * (ranks == 1)}{each}", shown)
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
