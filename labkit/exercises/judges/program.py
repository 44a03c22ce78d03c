"""The judge of a program: run on several numbers of ranks, proved, counted, and shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from labkit.exercises.judges.answers import judged
from labkit.exercises.task import Wrong
from labkit.kinds import LabError, bytes_text

if TYPE_CHECKING:
    from labkit.collectives import Trace

TIME_LIMIT = 10.0  # seconds; a program of an exercise is done in milliseconds
UNCHANGED = "No buffer has changed: buffer = x gives x that name, buffer[:] = x writes into it.\n"


def program(
    collective: str,
    too_much: Callable[[Trace], Iterable[str]] = lambda trace: (),
    *,
    ranks: tuple[int, ...] = (2, 3, 4, 5, 8, 1),
    elements: Callable[[int], tuple[int, ...]] | None = None,
    shown: int = 8,
) -> Callable[[Any], Trace]:
    """A function of (comm, buffer) that must be the collective on all these ranks and elements.

    Only then does `too_much` say which steps and bytes of a run on `shown` ranks are too many.
    """

    def sizes(count: int) -> tuple[int, ...]:
        if elements:
            return elements(count)
        # Each rank has as much for each other one in an all-to-all.
        return (count, 2 * count) if collective == "all_to_all" else (count, 2 * count + 1, 1)

    def prove(answer: Any) -> Trace:
        for count in ranks:
            for size in sizes(count):
                _prove(answer, collective, count, size)
        trace = _run(answer, shown, sizes(shown)[0])
        if faults := list(too_much(trace)):
            raise Wrong(f"It is correct. But on {shown} ranks {' And '.join(faults)}", trace)
        return trace

    return judged(prove, 6 * TIME_LIMIT)


def more_bytes_than_a_ring(trace: Trace) -> Iterator[str]:
    """What is too much where a ring would send less."""
    ring = 2 * (trace.ranks - 1) / trace.ranks * max(one.nbytes for one in trace.inputs)
    if max(trace.bytes_sent) > ring:
        busiest = bytes_text(max(trace.bytes_sent))
        yield f"the busiest rank sends {busiest}; {bytes_text(ring)} are enough."


def _run(answer: Callable[..., Any], ranks: int, size: int) -> Trace:
    import numpy as np

    from labkit import collectives

    whole = np.arange(1.0, ranks * size + 1).reshape(ranks, size)
    return collectives.run(answer, list(whole), timeout=TIME_LIMIT)


def _prove(answer: Callable[..., Any], collective: str, ranks: int, size: int) -> None:
    trace = None
    try:
        trace = _run(answer, ranks, size)
        verdict = trace.check(collective)
    except LabError as fault:
        raise Wrong(f"On {ranks} rank{'s' * (ranks > 1)}: {fault}", trace) from None
    if not verdict:
        unchanged = all((a == b).all() for a, b in zip(trace.inputs, trace.outputs, strict=True))
        told = not unchanged or "buffer[:]" in str(verdict)
        text = f"{verdict}\n{'' if told else UNCHANGED}"
        raise Wrong(f"{text}Each rank had {size} element{'s' * (size > 1)}.", trace)
