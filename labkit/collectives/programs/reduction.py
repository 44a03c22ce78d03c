"""What a reduction does with two arrays.

>>> mine, received = np.array([1.0, 5.0]), np.array([3.0, 4.0])
>>> combine("max", mine, received)
>>> mine
array([3., 5.])
"""

from __future__ import annotations

import numpy as np

from labkit.arguments import one_of
from labkit.collectives.programs.buffers import Array
from labkit.kinds import LabError

__all__ = ["OPERATIONS", "combine", "finish", "operation_name", "undivided"]

# A mean is a sum that the rank with the total divides, once, by the number of ranks.
OPERATIONS: dict[str, np.ufunc] = {
    "sum": np.add,
    "mean": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "prod": np.multiply,
}


def combine(op: str, mine: Array, received: Array) -> None:
    """Add what was received to what is here, in place."""
    OPERATIONS[one_of("op", op, OPERATIONS)](mine, received, out=mine)


def finish(op: str, total: Array, ranks: int) -> None:
    """Divide the total by the number of ranks if a mean is wanted; whole numbers round down."""
    if op != "mean":
        return
    if total.dtype.kind == "b":
        raise LabError('op="mean" of True and False: convert the arrays to numbers first.')
    whole = total.dtype.kind in "iu"
    (np.floor_divide if whole else np.divide)(total, total.dtype.type(ranks), out=total)


def operation_name(op: object) -> str | None:
    """The operation's name, if it is one of these."""
    return op if isinstance(op, str) and op in OPERATIONS else None


def undivided(op: str) -> str:
    """The operation for a part of the ranks, whose total is not to be divided yet."""
    return "sum" if op == "mean" else op
