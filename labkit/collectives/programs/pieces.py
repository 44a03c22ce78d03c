"""How programs cut up a buffer, and how they count in powers of two."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from labkit.collectives.operations import Array
from labkit.kinds import LabError

__all__ = ["Comm", "check_count", "check_root", "powers_of_two", "split"]

# labkit's simulated communicator, a Group of its ranks, or MPI.COMM_WORLD of mpi4py.
Comm: TypeAlias = Any


def check_root(root: int, ranks: int) -> None:
    """A root beyond the last rank would come round to another one, unseen."""
    if not isinstance(root, (int, np.integer)) or not 0 <= root < ranks:
        last = f"give one from 0 to {ranks - 1}" if ranks > 1 else "there is only rank 0"
        raise LabError(f"root={root!r} is none of the {ranks} ranks: {last}.")


def check_count(name: str, value: int) -> None:
    """There is no node without ranks, and no buffer in no pieces."""
    if not isinstance(value, (int, np.integer)) or value < 1:
        raise LabError(f"{name}={value!r} cannot be. Give a whole number: {name}=1 or more.")


def split(buffer: Array, parts: int) -> list[Array]:
    """Views of `parts` chunks of the buffer, the longer ones first: 10 in 4 is 3, 3, 2, 2."""
    if not buffer.flags.c_contiguous:
        raise LabError(
            "The buffer is not contiguous, so its chunks would be copies. "
            "Pass np.ascontiguousarray(buffer)."
        )
    return np.array_split(buffer.reshape(-1), parts)


def powers_of_two(below: int) -> list[int]:
    """The powers of two below a number: for 6 they are 1, 2, 4."""
    return [1 << bit for bit in range((below - 1).bit_length())]
