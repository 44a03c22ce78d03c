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

from labkit.arguments import one_of, whole
from labkit.kinds import LabError

Array: TypeAlias = npt.NDArray[Any]
# labkit's simulated communicator, a Group of its ranks, or MPI.COMM_WORLD of mpi4py.
Comm: TypeAlias = Any

# Of MPI's. There is no mean: a program divides its sum by the number of ranks.
OPERATIONS: dict[str, np.ufunc] = {"sum": np.add, "max": np.maximum, "min": np.minimum}
# The reductions of the library's calls, by their names in mpi4py.
MPI_OPERATIONS = {"SUM": np.add, "PROD": np.multiply, "MAX": np.maximum, "MIN": np.minimum}


def split(buffer: Array | list[Array], parts: int) -> list[Array]:
    """Returns views of `parts` chunks of the buffer, the longer ones first: 10 in 4 is 3, 3, 2, 2.

    A list already holds chunks, and is returned as it is.
    """
    return buffer if isinstance(buffer, list) else np.array_split(buffer.reshape(-1), parts)


def powers_of_two(below: int) -> list[int]:
    """Returns the powers of two below a number: for 6 they are 1, 2, 4."""
    return [1 << bit for bit in range((below - 1).bit_length())]


def combine(op: str | np.ufunc, mine: Array, received: Array) -> None:
    """Reduce the received array into `mine`, in place."""
    add = op if isinstance(op, np.ufunc) else OPERATIONS[one_of("op", op, OPERATIONS)]
    add(mine, received, out=mine)


def make_buffers(inputs: Sequence[Any] | None, ranks: int | None, most: int) -> list[Array]:
    """Returns a buffer per rank: a copy of each input, or whole numbers counted through."""
    if (inputs is None) == (ranks is None) or not (inputs is None or hasattr(inputs, "__len__")):
        raise LabError("A run needs its data: give inputs=[one array per rank], or ranks=8.")
    count = whole("ranks", ranks, at_least=1) if inputs is None else len(inputs)
    if count > most:
        raise LabError(
            f"At most {most} ranks run on one machine, got {count:,}. What labkit's own programs "
            "cost on many thousand ranks, collectives.cost computes."
        )
    if inputs is None:
        return [np.arange(1.0, count + 1) + rank * count for rank in range(count)]
    buffers = [np.array(item, order="C", copy=True) for item in inputs]
    dtypes = sorted({str(buffer.dtype) for buffer in buffers})
    if len(dtypes) != 1 or buffers[0].dtype.kind not in "biufc":
        raise LabError(
            "inputs must be an array of numbers for each rank, all of one dtype, got "
            f"{' and '.join(dtypes) or 'no array'}."
        )
    return buffers


class Group:
    """Some ranks of a communicator as a communicator, for programs that call only Sendrecv.

    `Group(comm, [4, 5, 6, 7])` lets such a program run on the second node of four ranks.
    """

    def __init__(self, comm: Comm, members: Sequence[int]) -> None:
        self.comm = comm
        self.members = list(members)

    def Get_rank(self) -> int:  # noqa: N802
        """My number in the group."""
        return self.members.index(self.comm.Get_rank())

    def Get_size(self) -> int:  # noqa: N802
        """Returns how many ranks the group has."""
        return len(self.members)

    def Sendrecv(self, sendbuf: Any, dest: int, *, recvbuf: Any, source: int) -> None:  # noqa: N802
        """Send to a member and receive from a member at the same time."""
        self.comm.Sendrecv(
            sendbuf, dest=self.members[dest], recvbuf=recvbuf, source=self.members[source]
        )
