"""What a reduction does with two arrays: sum, mean, max, min, prod, or a numpy function of two.

>>> mine, received = np.array([1.0, 5.0]), np.array([3.0, 4.0])
>>> combine("max", mine, received)
>>> mine
array([3., 5.])
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from labkit.collectives.programs.buffers import Array
from labkit.kinds import LabError

__all__ = ["OPERATIONS", "Op", "combine", "finish", "operation_name", "undivided"]

Op: TypeAlias = "str | np.ufunc"

# A mean is a sum that the rank with the total divides, once, by the number of ranks.
OPERATIONS: dict[str, np.ufunc] = {
    "sum": np.add,
    "mean": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "prod": np.multiply,
}


# numpy functions that are one of them.
_UFUNCS: dict[Any, str] = {
    np.add: "sum", np.maximum: "max", np.minimum: "min", np.multiply: "prod",
    np.fmax: "max", np.fmin: "min", np.logical_or: "max", np.logical_and: "min",
}  # fmt: skip


def operation_name(op: object) -> str | None:
    """The operation's name, if it is one of those above.

    >>> operation_name(np.maximum), operation_name("mean"), operation_name(np.hypot)
    ('max', 'mean', None)
    """
    name = _UFUNCS.get(op) if isinstance(op, np.ufunc) else op
    return name if isinstance(name, str) and name in OPERATIONS else None


def combine(op: Op, mine: Array, received: Array) -> None:
    """Add what was received to what is here, in place."""
    ufunc = OPERATIONS.get(op) if isinstance(op, str) else op
    if not (isinstance(ufunc, np.ufunc) and ufunc.nin == 2 and ufunc.nout == 1):
        raise LabError(
            f"op must be one of {', '.join(OPERATIONS)}, or a numpy function of two arrays like "
            f"np.maximum, got {op!r}."
        )
    ufunc(mine, received, out=mine)


def finish(op: Op, total: Array, ranks: int) -> None:
    """Divide the total by the number of ranks if a mean is wanted; whole numbers round down."""
    if not isinstance(op, str) or op != "mean":
        return
    if total.dtype.kind == "b":
        raise LabError('op="mean" of True and False: convert the arrays to numbers first.')
    whole = total.dtype.kind in "iu"
    (np.floor_divide if whole else np.divide)(total, total.dtype.type(ranks), out=total)


def undivided(op: Op) -> Op:
    """The operation for a part of the ranks, whose total is not to be divided yet."""
    return "sum" if isinstance(op, str) and op == "mean" else op
