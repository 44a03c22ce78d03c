"""What a reduction does with two arrays: sum, mean, max, min, prod, or a numpy function of two.

>>> mine, received = np.array([1.0, 5.0]), np.array([3.0, 4.0])
>>> combine("max", mine, received)
>>> mine
array([3., 5.])
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from labkit.kinds import LabError

__all__ = ["OPERATIONS", "Array", "Op", "combine", "finish", "ufunc_of", "undivided"]

Array: TypeAlias = npt.NDArray[Any]
Op: TypeAlias = "str | np.ufunc"

# A mean is a sum that whoever holds the total divides, once, by the number of ranks.
OPERATIONS: dict[str, np.ufunc] = {
    "sum": np.add,
    "mean": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "prod": np.multiply,
}


def ufunc_of(op: Op) -> np.ufunc:
    """The numpy function that combines two arrays: `ufunc_of("sum")` is `np.add`."""
    if isinstance(op, np.ufunc) and op.nin == 2 and op.nout == 1:
        return op
    if isinstance(op, str) and op in OPERATIONS:
        return OPERATIONS[op]
    raise LabError(
        f"op={op!r} is no reduction. Take one of {', '.join(OPERATIONS)}, "
        "or a numpy function of two arrays like np.maximum."
    )


def combine(op: Op, mine: Array, received: Array) -> None:
    """Add what was received to what is here, in place."""
    ufunc_of(op)(mine, received, out=mine)


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
