"""Random numbers and smooth fields that come out the same, bit for bit, on every machine.

Only the raw 64-bit stream of PCG64 is used, because NumPy promises that stream and not its
distributions, and only + - * / sqrt, floor and comparisons, because IEEE 754 fixes their results
while sin, exp, matrix products and sums depend on the processor and the library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

__all__ = ["Draws", "box_gap", "grid_sample", "spread", "triangle_wave"]


class Draws:
    """An independent stream of random numbers, named by whole numbers.

    >>> Draws(1, 0).uniform(2).tolist() == Draws(1, 0).uniform(2).tolist()
    True
    """

    def __init__(self, *name: int) -> None:
        import numpy as np

        self._bits = np.random.PCG64(np.random.SeedSequence(name))

    def whole(self, count: int) -> NDArray[np.uint64]:
        """Whole numbers of 64 random bits."""
        bits: Any = self._bits.random_raw(count)
        return bits  # type: ignore[no-any-return]

    def octets(self, count: int) -> NDArray[np.uint8]:
        """Whole numbers from 0 to 255, eight from each raw number."""
        return self.whole(-(-count // 8)).astype("<u8").view("u1")[:count]

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Floats:
        """Numbers spread evenly from low to high."""
        import numpy as np

        # 24 bits fill the mantissa of a float32 exactly.
        numbers = (self.whole(int(np.prod(shape))) >> np.uint64(40)).astype(np.float32)
        numbers *= np.float32(2.0**-24)
        return (numbers * np.float32(high - low) + np.float32(low)).reshape(shape)

    def bell(self, *shape: int, wide: float = 1.0) -> Floats:
        """Numbers around zero with standard deviation `wide` that never leave 3.5 of it."""
        import numpy as np

        total = self.uniform(*shape)
        for _ in range(3):
            total = total + self.uniform(*shape)
        return (total - np.float32(2)) * np.float32(wide * 3.0**0.5)

    def pick(self, count: int, among: int) -> NDArray[np.int64]:
        """`count` choices among 0 ... among - 1."""
        import numpy as np

        chosen: NDArray[np.int64] = np.floor(self.uniform(count) * np.float32(among)).astype(
            np.int64
        )
        return chosen

    def labels(self, count: int, classes: int) -> NDArray[np.uint8]:
        """Every class equally often (to within one), in random order."""
        import numpy as np

        order = np.argsort(self.whole(count), kind="stable")
        return (np.arange(count) % classes).astype(np.uint8)[order]


def spread(knots: Floats, size: int) -> Floats:
    """Smooth fields of size by size from coarse grids of knots (fields, k, k).

    Between knots the field follows a smoothstep, so that no grid lines show.
    """
    import numpy as np

    last = knots.shape[1] - 1
    place = np.arange(size, dtype=np.float32) * np.float32(last / (size - 1))
    left = np.minimum(np.floor(place), last - 1).astype(np.int64)
    part = place - left.astype(np.float32)
    part = part * part * (np.float32(3) - np.float32(2) * part)
    rows = knots[:, left, :]
    rows = rows + (knots[:, left + 1, :] - rows) * part[None, :, None]
    field: Floats = rows[:, :, left]
    field += (rows[:, :, left + 1] - field) * part[None, None, :]
    return field


def grid_sample(fields: Floats, which: NDArray[np.int64], x: Floats, y: Floats) -> Floats:
    """The fields (fields, s, s), which cover -1 ... 1, read between their points.

    Image i reads field which[i] at its own x and y (images, rows, columns); what lies outside
    reads the rim.
    """
    import numpy as np

    side = fields.shape[1]
    half = np.float32((side - 1) / 2)
    rim = np.float32(side - 1.001)
    across = np.clip((x + np.float32(1)) * half, np.float32(0), rim)
    down = np.clip((y + np.float32(1)) * half, np.float32(0), rim)
    column, row = across.astype(np.int32), down.astype(np.int32)
    across -= column
    down -= row
    at = row * np.int32(side) + column + (which * side * side).astype(np.int32)[:, None, None]
    flat = fields.reshape(-1)
    upper = flat[at]
    upper += (flat[at + 1] - upper) * across
    at += side
    lower: Floats = flat[at]
    lower += (flat[at + 1] - lower) * across
    lower -= upper
    lower *= down
    lower += upper
    return lower


def box_gap(points: Floats, x: Floats, y: Floats) -> Floats:
    """How far each place (x, y) of a grid is from the nearest of many line segments.

    `points` is (glyphs, segments, 4): x and y where a segment starts, x and y where it ends.
    """
    import numpy as np

    best: Floats = np.full((points.shape[0], *x.shape), np.float32(9), np.float32)
    for segment in range(points.shape[1]):
        x0, y0, x1, y1 = (points[:, segment, i, None, None] for i in range(4))
        dx, dy = x1 - x0, y1 - y0
        length = np.maximum(dx * dx + dy * dy, np.float32(1e-9))
        px, py = x - x0, y - y0
        along = np.clip((px * dx + py * dy) / length, np.float32(0), np.float32(1))
        px = px - along * dx
        py = py - along * dy
        np.minimum(best, px * px + py * py, out=best)
    gap: Floats = np.sqrt(best)
    return gap


def triangle_wave(phase: Floats) -> Floats:
    """A wave from -1 to 1 and back with period 1."""
    import numpy as np

    wave: Floats = np.abs(phase - np.floor(phase) - np.float32(0.5))
    wave *= np.float32(4)
    wave -= np.float32(1)
    return wave
