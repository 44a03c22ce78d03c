"""Run a program on N simulated ranks, and write down what happened."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from labkit.collectives.communicator import Communicator, lent_to_mpi4py
from labkit.collectives.messages import count_steps
from labkit.collectives.programs.reduction import operation_name
from labkit.collectives.records import Array, Record, Values
from labkit.collectives.scheduler import Scheduler

__all__ = ["MOST_RANKS", "simulate"]

MOST_RANKS = 256  # a ring of them makes 130,000 calls, in 10 s


def simulate(
    program: Callable[..., Any],
    inputs: Sequence[Array],
    options: dict[str, Any],
    *,
    eager: int = 0,
    timeout: float = 60.0,
) -> Record:
    """Run `program(comm, buffer, **options)` on a copy of each input; raise what went wrong."""
    buffers = [np.array(one, order="C", copy=True) for one in inputs]
    given = tuple(Values.of(buffer) for buffer in buffers)
    run = Scheduler(program, buffers, eager)
    returned: list[Any] = [None] * len(buffers)

    def work(rank: int) -> None:
        returned[rank] = program(Communicator(run, rank), buffers[rank], **options)

    with lent_to_mpi4py(program):
        run.run(work, timeout)
    count_steps(run.calls, run.ranks)
    messages = sorted(run.mail.messages, key=lambda send: (send.step, send.rank))
    for number, send in enumerate(messages):
        send.number = number
    left = tuple(Values.of(buffer) for buffer in buffers)
    keywords = {**getattr(program, "keywords", {}), **options}  # those of a functools.partial too
    inner = getattr(program, "func", program)
    return Record(
        program=str(getattr(inner, "__name__", type(inner).__name__)),
        ranks=run.ranks,
        options={name: repr(value) for name, value in keywords.items()},
        sources=tuple(run.lines.sources),
        calls=tuple(call.recorded() for call in run.calls),
        messages=tuple(send.recorded() for send in messages),
        given=given,
        left=left,
        states=run.log.states(),
        steps=messages[-1].step if messages else 0,
        complete=run.log.complete,
        op=_operation(program, keywords),
        note=_note(run, returned, unchanged=given == left),
        _again=partial(simulate, program, options=options, eager=eager, timeout=timeout),
    )


def _operation(program: Callable[..., Any], keywords: dict[str, Any]) -> str | None:
    """The name of the program's option `op`, or of its default."""
    try:
        default = inspect.signature(program).parameters["op"].default
    except (KeyError, ValueError):
        default = None
    return operation_name(keywords.get("op", default))


def _note(run: Scheduler, returned: list[Any], *, unchanged: bool) -> str:
    """What is odd about a run that came to its end."""
    if unchanged and any(isinstance(value, np.ndarray) for value in returned):
        return (
            "The program returned an array and left its buffer as it was: a program works in "
            "place, so write into the buffer (buffer[:] = result)."
        )
    if run.ranks > 1 and not run.calls and "mpi4py.MPI" in sys.modules:
        return (
            "No rank has sent anything: in a simulated run MPI.COMM_WORLD is a world of one rank. "
            "Use the comm that the program is given."
        )
    return ""
