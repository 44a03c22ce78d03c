"""What a run is given, checked: a program, its options, and an array for each rank."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from labkit.arguments import whole
from labkit.collectives.records import Array, counted
from labkit.kinds import LabError

__all__ = ["check_program", "make_buffers"]


def check_program(program: Callable[..., Any], options: dict[str, Any]) -> None:
    """Refuse what is no program, or cannot take these options."""
    if not callable(program):
        raise LabError(
            f"program must be a function of (comm, buffer), such as "
            f"collectives.programs.ring_all_reduce, got {program!r}."
        )
    inner = inspect.unwrap(getattr(program, "func", program))  # functools.partial
    name = getattr(inner, "__name__", type(inner).__name__)
    if inspect.isgeneratorfunction(inner) or inspect.iscoroutinefunction(inner):
        raise LabError(
            f"{name} is a generator or an async function, which would not run. Write it without "
            "yield, async and await."
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
            f"{name} cannot be called as program(comm, buffer"
            f"{''.join(f', {option}=...' for option in options)}): {fault}. {advice}"
        ) from None


def make_buffers(inputs: Sequence[Any] | None, ranks: int | None, most: int) -> list[Array]:
    """A buffer per rank: a copy of each input, or whole numbers that count through the ranks."""
    if inputs is None:
        if ranks is None:
            raise LabError("A run needs its data: give inputs=[one array per rank], or ranks=8.")
        _check_count(ranks := whole("ranks", ranks, at_least=1), most)
        return [np.arange(1.0, ranks + 1) + rank * ranks for rank in range(ranks)]
    try:
        given = list(inputs.values() if isinstance(inputs, Mapping) else inputs)
    except TypeError:
        raise LabError(f"inputs must be a list of one array per rank, got {inputs!r}.") from None
    if not given:
        raise LabError("inputs is empty. Give one array per rank: the first is rank 0's.")
    if ranks is not None and ranks != len(given):
        raise LabError(f"ranks={ranks}, but inputs has {len(given)} arrays. Leave ranks out.")
    _check_count(len(given), most)
    buffers = [_buffer(item, rank) for rank, item in enumerate(given)]
    dtypes = {str(buffer.dtype) for buffer in buffers}
    if len(dtypes) > 1:
        raise LabError(
            f"The inputs hold {' and '.join(sorted(dtypes))}. Give every rank the same: "
            "np.asarray(values, dtype=...)."
        )
    kind = buffers[0].dtype
    if kind.kind in "OSUmM" or kind.names:
        raise LabError(f"inputs must be arrays of numbers, got {kind}.")
    return buffers


def _check_count(ranks: int, most: int) -> None:
    if ranks > most:
        raise LabError(
            f"At most {most} ranks run on one machine, got {ranks:,}. What {counted(ranks, 'rank')}"
            " would cost, collectives.cost computes."
        )


def _buffer(item: Any, rank: int) -> Array:
    try:
        return np.array(item, order="C", copy=True)
    except (TypeError, ValueError) as fault:
        raise LabError(f"The input of rank {rank} is no array of numbers: {fault}.") from None
