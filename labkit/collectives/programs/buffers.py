"""How programs cut up a buffer, and how they count in powers of two."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["Array", "Comm", "powers_of_two", "split"]

Array: TypeAlias = npt.NDArray[Any]
# labkit's simulated communicator, a Group of its ranks, or MPI.COMM_WORLD of mpi4py.
Comm: TypeAlias = Any


def split(buffer: Array, parts: int) -> list[Array]:
    """Views of `parts` chunks of the buffer, the longer ones first: 10 in 4 is 3, 3, 2, 2."""
    return np.array_split(buffer.reshape(-1), parts)


def powers_of_two(below: int) -> list[int]:
    """The powers of two below a number: for 6 they are 1, 2, 4."""
    return [1 << bit for bit in range((below - 1).bit_length())]
