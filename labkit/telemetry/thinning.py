"""Old samples thinned: four rows become two that keep what a picture and a sum need.

Of each column the smallest and the largest value stay, in the order in which they came; of a
counter the first and the last, at their own times. A column without values in a block has none
afterwards: a gap of four rows stays a gap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

__all__ = ["BLOCK", "next_to_thin", "thin"]

BLOCK = 4


def thin(times: Numbers, values: Numbers, counter: NDArray[np.bool_]) -> tuple[Numbers, Numbers]:
    """`values` is rows × devices × metrics, of four rows or a multiple; `counter` is per metric."""
    import numpy as np

    shape = (len(times) // BLOCK, BLOCK, *values.shape[1:])
    blocks = values.reshape(shape)
    known = ~np.isnan(blocks)
    first, last = known.argmax(1), BLOCK - 1 - known[:, ::-1].argmax(1)
    low = np.where(known, blocks, np.inf).argmin(1)
    high = np.where(known, blocks, -np.inf).argmax(1)
    early = np.where(counter, first, np.minimum(low, high))
    late = np.where(counter, last, np.maximum(low, high))
    out = np.stack(
        [np.take_along_axis(blocks, at[:, None], 1)[:, 0] for at in (early, late)], axis=1
    )
    # A single value goes to the row that is nearer.
    single = known.sum(1) == 1
    out[:, 0][single & (first >= BLOCK // 2)] = np.nan
    out[:, 1][single & (first < BLOCK // 2)] = np.nan
    when = times.reshape(-1, BLOCK)[:, [0, BLOCK - 1]]
    return when.reshape(-1), out.reshape(-1, *values.shape[1:])


def next_to_thin(levels: NDArray[np.int8], held: NDArray[np.bool_]) -> tuple[int, int]:
    """Which rows to thin next (from, to): of the older half, the stretch of one level that has the
    most rows that are not `held`.

    A level says how often rows were thinned. Each level keeps about as many rows in this way, and
    stands for twice the time of the one after it: the first minutes of a long day stay to be seen,
    while thinning all of the older half each time would leave next to nothing of them.
    """
    import numpy as np

    old = levels[: len(levels) // 2 // BLOCK * BLOCK]
    starts = np.flatnonzero(np.diff(old, prepend=old[0] + 1))
    ends = [*starts[1:].tolist(), len(old)]
    loose = np.add.reduceat(~held[: len(old)], starts, dtype=int)
    # Of equals the newest, which says the most in the least time.
    most = len(loose) - 1 - int(loose[::-1].argmax())
    return (int(starts[most]), ends[most]) if loose[most] >= BLOCK else (0, len(old))
