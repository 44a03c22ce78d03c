"""What a receive says about its message, and the constants that stand for anyone and for nobody."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

__all__ = ["ANY_SOURCE", "ANY_TAG", "PROC_NULL", "Status", "tell", "tell_nobody"]

# No MPI library uses these numbers, so that its own constants and these can both be understood.
ANY_SOURCE = -9001
PROC_NULL = -9002
ANY_TAG = -9003


class Status:
    """Where a received message came from, and how long it was."""

    def __init__(self) -> None:
        self.source = ANY_SOURCE
        self.tag = ANY_TAG
        self.count = 0  # bytes, as in mpi4py
        self.error = 0

    def Get_source(self) -> int:  # noqa: N802
        """The rank that sent the message."""
        return self.source

    def Get_tag(self) -> int:  # noqa: N802
        """The message's tag."""
        return self.tag

    def Get_count(self, datatype: Any = None) -> int:  # noqa: N802
        """Its length in bytes; with a datatype (or a numpy dtype), in elements of that."""
        if datatype is None:
            return self.count
        mpi_size = getattr(datatype, "Get_size", None)
        return self.count // int(mpi_size() if mpi_size else np.dtype(datatype).itemsize)

    def Get_elements(self, datatype: Any) -> int:  # noqa: N802
        """Its length in elements of a datatype."""
        return self.Get_count(datatype)

    def Get_error(self) -> int:  # noqa: N802
        """Always 0: a run with an error ends."""
        return self.error


def tell(status: Any, source: int, tag: int, nbytes: int) -> None:
    """Fill in a status: one of ours, or one of mpi4py's."""
    status.source, status.tag = source, tag
    if isinstance(status, Status):
        status.count = nbytes
    else:
        status.Set_elements(sys.modules["mpi4py.MPI"].BYTE, nbytes)


def tell_nobody(status: Any) -> None:
    """Fill in the status of a receive from PROC_NULL, in the numbers of an MPI that is loaded."""
    mpi: Any = sys.modules.get("mpi4py.MPI")
    if mpi is None:
        tell(status, PROC_NULL, ANY_TAG, 0)
    else:
        tell(status, mpi.PROC_NULL, mpi.ANY_TAG, 0)
