"""The memory that a call is given, in mpi4py's ways: an array, [array, count], [array, type], …

>>> [part.tolist() for part in parts([np.arange(5), [2, 3]], ranks=2)]
[[0, 1], [2, 3, 4]]
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

import numpy as np

from labkit.collectives.buffers import split
from labkit.collectives.records import Array

UNKNOWN = np.dtype("V0")  # of Fortran's datatypes, such as MPI.COMPLEX, where MPI has not started


class SpecFault(ValueError):
    """What is wrong with what a call was given: the words after `Rank 0's Send (line 3)`."""


def memory(buf: Any) -> Array:
    """Returns the elements of a buffer in their order in memory, without a copy.

    As in mpi4py it is an array, [array, count], [array, type] or [array, count, type].
    """
    array, *specs = buf if isinstance(buf, (list, tuple)) and buf else [buf]
    what = "None" if buf is None else f"a {type(buf).__name__}"
    if not isinstance(array, np.ndarray):
        with suppress(TypeError):
            array = np.asarray(memoryview(array))
    elif array.dtype.hasobject:
        array, what = None, "an array of Python objects"
    if not isinstance(array, np.ndarray):
        raise SpecFault(
            f"needs a numpy array of numbers and was given {what}. Give np.array(...); a "
            "single number is np.array([x])."
        )
    if not array.flags.forc:
        raise SpecFault(
            f"was given an array of shape {array.shape} that is not in one stretch of memory, "
            "such as every second element or a column. Copy it first: np.ascontiguousarray(x)."
        )
    flat: Array = array.reshape(-1, order="A")
    count, first = flat.size, 0
    for spec in specs:
        if isinstance(spec, (list, tuple)):
            count, first = spec
        elif is_whole(spec):
            count = spec
        elif spec is not None and (dtype := _dtype_of(spec)) not in {array.dtype, UNKNOWN}:
            raise SpecFault(
                f"was given an array of {array.dtype} with the datatype {dtype or spec}. "
                "Here a message has the array's own datatype: leave it out, and copy the "
                "elements of a vector or struct into an array of their own."
            )
    if not 0 <= first <= first + count <= flat.size:
        text = f"asks for {first + count:,} elements of an array that has {flat.size:,}."
        raise SpecFault(text)
    return flat[first : first + count]


def parts(buf: Any, ranks: int, *, equal: bool = False) -> list[Array]:
    """Returns the elements of each rank: [array, counts] or [array, (counts, displacements)].

    Without counts they are those of np.array_split, and without displacements without gaps.
    """
    array, *rest = buf if isinstance(buf, (list, tuple)) and buf else [buf]
    datatype = rest.pop() if len(rest) == 3 or (rest and _is_datatype(rest[-1])) else None
    counts, starts = [*(rest[0] if rest and isinstance(rest[0], tuple) else rest), None, None][:2]
    if counts is None:
        counts = [part.size for part in split(memory(array), ranks)]
        if equal and counts[0] != counts[-1]:
            raise SpecFault(
                f"shares {memory(array).size:,} elements equally among {ranks} ranks, which is "
                "not possible. Use the call with a v, and give it counts."
            )
    counts = [counts] * ranks if is_whole(counts) else [int(count) for count in counts]
    starts = np.cumsum([0, *counts[:-1]]).tolist() if starts is None else [*starts]
    if not len(counts) == len(starts) == ranks:
        text = f"got counts {counts} and displacements {starts}."
        raise SpecFault(f"needs a list of {ranks} counts, one for each rank, {text}")
    return [memory([array, spec, datatype]) for spec in zip(counts, starts, strict=True)]


def fill(into: Any, data: Any) -> None:
    """Copy `data` into a buffer of the same size; MPI.IN_PLACE is there already."""
    if in_place(data):
        return
    mine, given = memory(into), memory(data)
    if mine.size != given.size or mine.dtype != given.dtype:
        raise SpecFault(
            f"sends {given.size:,} elements of {given.dtype} and has room for {mine.size:,} of "
            f"{mine.dtype}. Give both the same size and dtype."
        )
    mine[:] = given


def in_place(buf: Any) -> bool:
    """Returns whether it is MPI.IN_PLACE: what is sent lies where the result will be."""
    return buf is not None and buf is getattr(sys.modules.get("mpi4py.MPI"), "IN_PLACE", None)


def overlap(one: Any, other: Any) -> bool:
    """Returns whether two buffers share memory."""
    arrays = [each[0] if isinstance(each, (list, tuple)) else each for each in (one, other)]
    return all(isinstance(each, np.ndarray) for each in arrays) and np.may_share_memory(*arrays)


def is_whole(number: Any) -> bool:
    """Returns whether it is a whole number of Python or numpy."""
    return isinstance(number, (int, np.integer))


def _is_datatype(spec: Any) -> bool:
    return isinstance(spec, (str, type, np.dtype)) or hasattr(spec, "typestr")


def _dtype_of(datatype: Any) -> np.dtype[Any] | None:
    """Returns NumPy's dtype of a datatype of mpi4py, or of a code such as "d", or None."""
    with suppress(TypeError):
        dtype: np.dtype[Any] = np.dtype(getattr(datatype, "typestr", datatype))
        return dtype
    return None
