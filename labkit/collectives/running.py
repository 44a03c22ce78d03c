"""Run a program on N simulated ranks and keep what happened.

>>> def halves(comm, buffer):
...     if comm.Get_rank() == 0:
...         comm.Send(buffer[:1], dest=1)
...     else:
...         comm.Recv(buffer[:1], source=0)
>>> run(halves, ranks=2)
Trace(halves: 2 ranks, 1 message, 1 step, 8 B from the busiest rank)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from labkit.collectives.quantities import is_number
from labkit.collectives.trace import Trace, values
from labkit.kinds import LabError

__all__ = ["buffers_for", "explain_deadline", "explain_program", "run"]


def run(
    program: Callable[..., Any],
    inputs: Sequence[Any] | None = None,
    *,
    ranks: int | None = None,
    eager: int = 0,
    deadline: float = 60.0,
    **options: Any,
) -> Trace:
    """Run `program(comm, buffer, **options)` on every rank, in turns, in this process.

    `inputs` holds one array per rank, and each is copied; `ranks=8` makes some: rank r gets the
    whole numbers from 8r + 1 to 8r + 8. A `Send` waits for its receiver, whatever its size, so that
    a program that ends here ends for messages of every size; MPI libraries do not wait with small
    ones, and `eager=4096` does the same for those of up to 4,096 bytes.
    """
    from labkit.collectives.simulator import Simulator

    explain_program(program, options)
    explain_deadline(deadline)
    _explain_eager(eager)
    buffers = buffers_for(inputs, ranks)
    given = tuple(values(buffer) for buffer in buffers)
    simulator = Simulator(program, buffers, eager=eager, deadline=deadline)
    simulator.run(options)
    calls, messages = simulator.recorded()
    left = tuple(values(buffer) for buffer in buffers)
    return Trace(
        program=_name(program),
        ranks=len(buffers),
        options={name: repr(value) for name, value in _chosen(program, options).items()},
        sources=tuple(simulator.lines.sources),
        calls=calls,
        messages=messages,
        given=given,
        left=left,
        states=tuple(simulator.changes.states),
        steps=max((message.step for message in messages), default=0),
        complete=simulator.changes.complete,
        note=_note(simulator.returned, given == left),
        _again=partial(run, program, eager=eager, deadline=deadline, **options),
    )


def _chosen(program: Any, options: dict[str, Any]) -> dict[str, Any]:
    """The options of the run, and those that a functools.partial has brought along."""
    return {**program.keywords, **options} if isinstance(program, partial) else options


def buffers_for(inputs: Sequence[Any] | None, ranks: int | None) -> list[np.ndarray]:
    """A buffer per rank: a copy of each input, or whole numbers that count through the ranks."""
    if inputs is None:
        if ranks is None:
            raise LabError("A run needs its data: give inputs=[one array per rank], or ranks=8.")
        if not isinstance(ranks, (int, np.integer)) or isinstance(ranks, bool) or ranks < 1:
            raise LabError(f"ranks={ranks!r} is no number of ranks. Give 1 or more, such as 8.")
        return [np.arange(1.0, ranks + 1) + rank * ranks for rank in range(ranks)]
    try:
        given = list(inputs.values() if isinstance(inputs, Mapping) else inputs)
    except TypeError:
        raise LabError(
            f"inputs={inputs!r} is no list of arrays. Give one array per rank: inputs=[a, b, c]."
        ) from None
    buffers = [_buffer(item, rank) for rank, item in enumerate(given)]
    if not buffers:
        raise LabError("inputs is empty. Give one array per rank: the first is rank 0's.")
    if ranks is not None and ranks != len(buffers):
        raise LabError(
            f"There are inputs for {len(buffers)} ranks, and ranks={ranks}. Leave ranks out."
        )
    for rank, buffer in enumerate(buffers):
        if buffer.dtype != buffers[0].dtype:
            raise LabError(
                f"Rank 0's input holds {buffers[0].dtype}, and rank {rank}'s {buffer.dtype}. "
                "Give every rank the same: np.asarray(values, dtype=...)."
            )
    kind = buffers[0].dtype
    if kind.kind in "OSUmM" or kind.names:
        raise LabError(f"The inputs hold {kind}, and no numbers. Give arrays of numbers.")
    return buffers


def explain_deadline(deadline: Any) -> None:
    """Refuse what is no time to wait."""
    if not is_number(deadline) or not deadline > 0:
        raise LabError(f"deadline={deadline!r} is no time to wait. Give seconds, such as 60.")


def _explain_eager(eager: Any) -> None:
    if not is_number(eager) or not eager >= 0:
        raise LabError(f"eager={eager!r} is no size of messages. Give bytes, such as 4096, or 0.")


def _buffer(item: Any, rank: int) -> np.ndarray:
    try:
        return np.array(item, order="C", copy=True)
    except (TypeError, ValueError) as fault:
        raise LabError(f"rank {rank}'s input is no array of numbers: {fault}.") from None


def explain_program(program: Any, options: dict[str, Any]) -> None:
    """Refuse what is no program, or cannot take these options."""
    if not callable(program):
        raise LabError(
            f"{program!r} is no program. Give a function of (comm, buffer), such as "
            "collectives.programs.ring_all_reduce."
        )
    inner = inspect.unwrap(getattr(program, "func", program))
    if inspect.isgeneratorfunction(inner) or inspect.iscoroutinefunction(inner):
        raise LabError(
            f"{_name(program)} is a generator or an async function, which would not run. Write it "
            "without yield, async and await."
        )
    try:
        inspect.signature(program).bind(None, None, **options)
    except ValueError:
        pass  # it has no signature to look at
    except TypeError as fault:
        advice = "Give run the keywords that the program needs, and only those."
        if "too many positional" in str(fault):
            advice = "Write def program(comm, buffer): every rank is given these two."
        raise LabError(
            f"{_name(program)} cannot be called as program(comm, buffer"
            f"{''.join(f', {name}=...' for name in options)}): {fault}. {advice}"
        ) from None


def _name(program: Any) -> str:
    inner = getattr(program, "func", program)  # functools.partial
    return str(getattr(inner, "__name__", type(inner).__name__))


def _note(returned: list[Any], unchanged: bool) -> str:
    if unchanged and any(isinstance(value, np.ndarray) for value in returned):
        return (
            "The program returned an array and left its buffer as it was: a program works in "
            "place, so write into the buffer (buffer[:] = result)."
        )
    return ""
