"""What programs share: chunks of a buffer, powers of two, reductions, and groups of ranks.

>>> mine, received = np.array([1.0, 5.0]), np.array([3.0, 4.0])
>>> combine("max", mine, received)
>>> mine
array([3., 5.])
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from labkit.arguments import one_of

Array: TypeAlias = npt.NDArray[Any]
# labkit's simulated communicator, a Group of its ranks, or MPI.COMM_WORLD of mpi4py.
Comm: TypeAlias = Any

# Of MPI's. There is no mean: a program divides its sum by the number of ranks.
OPERATIONS: dict[str, np.ufunc] = {"sum": np.add, "max": np.maximum, "min": np.minimum}
# The reductions of the library's calls, by their names in mpi4py.
MPI_OPERATIONS = {"SUM": np.add, "PROD": np.multiply, "MAX": np.maximum, "MIN": np.minimum}


def split(buffer: Array | list[Array], parts: int) -> list[Array]:
    """Views of `parts` chunks of the buffer, the longer ones first: 10 in 4 is 3, 3, 2, 2.

    A list is one of chunks already.
    """
    return buffer if isinstance(buffer, list) else np.array_split(buffer.reshape(-1), parts)


def powers_of_two(below: int) -> list[int]:
    """The powers of two below a number: for 6 they are 1, 2, 4."""
    return [1 << bit for bit in range((below - 1).bit_length())]


def combine(op: str | np.ufunc, mine: Array, received: Array) -> None:
    """Add what was received to what is here, in place."""
    add = op if isinstance(op, np.ufunc) else OPERATIONS[one_of("op", op, OPERATIONS)]
    add(mine, received, out=mine)


class Group:
    """The listed ranks of a communicator as one of their own, for programs that only Sendrecv.

    `Group(comm, [4, 5, 6, 7])` lets such a program run on the second node of four ranks.
    """

    def __init__(self, comm: Comm, members: Sequence[int]) -> None:
        self.comm = comm
        self.members = list(members)

    def Get_rank(self) -> int:  # noqa: N802
        """My number in the group."""
        return self.members.index(self.comm.Get_rank())

    def Get_size(self) -> int:  # noqa: N802
        """How many ranks the group has."""
        return len(self.members)

    def Sendrecv(self, sendbuf: Any, dest: int, *, recvbuf: Any, source: int) -> None:  # noqa: N802
        """Send to a member and receive from a member at the same time."""
        self.comm.Sendrecv(
            sendbuf, dest=self.members[dest], recvbuf=recvbuf, source=self.members[source]
        )
