"""Some of the ranks, numbered from 0 again: what `comm.Split` makes in MPI."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["Group"]


class Group:
    """The listed ranks of a communicator as one of their own, for programs that only Sendrecv.

    `Group(comm, [4, 5, 6, 7])` lets such a program run on the second node of four ranks.
    """

    def __init__(self, comm: Any, members: Sequence[int]) -> None:
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
