"""Synthetic images that a model can learn, in the shapes of a published data set.

Each class has a prototype: a digit of a 5 × 7 dot font for MNIST, else a smooth random pattern.
Writers distort the prototypes, and every image moves a writer's version by a few pixels. Training
and test images come from different writers, so a model must generalise.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from labkit.datasets.dataset import Bytes

__all__ = ["synthetic_images"]

Floats = NDArray[np.float32]
SEED = 1906
SHIFT = 2  # pixels that an image may be moved in each direction

# The digits 0 to 9; each row of a digit is five dots.
FONT = """
.###. ..#.. .###. ##### ...#. ##### ..##. ##### .###. .###.
#...# .##.. #...# ...#. ..##. #.... .#... ....# #...# #...#
#...# ..#.. ....# ..#.. .#.#. ####. #.... ...#. #...# #...#
#...# ..#.. ...#. ...#. #..#. ....# ####. ..#.. .###. .####
#...# ..#.. ..#.. ....# ##### ....# #...# .#... #...# ....#
#...# ..#.. .#... #...# ...#. #...# #...# .#... #...# ...#.
.###. .###. ##### .###. ...#. .###. .###. .#... .###. .##..
"""


def synthetic_images(
    count: int, shape: tuple[int, ...], classes: int, digits: bool, *, test: bool
) -> tuple[Bytes, Bytes]:
    """`count` images of this shape and their labels (count,); each class is equally frequent.

    >>> x, y = synthetic_images(20, (28, 28), 10, digits=True, test=False)
    >>> x.shape, sorted(y.tolist())[:4]
    ((20, 28, 28), [0, 0, 1, 1])
    """
    rng = np.random.default_rng((SEED, classes, int(test)))
    labels = rng.permutation(np.arange(count) % classes).astype(np.uint8)
    writers = _digits(shape[0], -(-count // 200), rng) if digits else _patterns(shape, classes, rng)
    writer = rng.integers(writers.shape[1], size=count)
    images = np.empty((count, *shape), np.uint8)
    moves = rng.integers(-SHIFT, SHIFT + 1, size=(count, 2))
    for down in range(-SHIFT, SHIFT + 1):
        for right in range(-SHIFT, SHIFT + 1):
            some = np.flatnonzero((moves == (down, right)).all(axis=1))
            version = writers[labels[some], writer[some]]
            images[some] = np.roll(version, (down, right), axis=(1, 2))
    return images, labels


def _digits(side: int, writers: int, rng: Generator) -> Bytes:
    """The ten digits as each writer writes them: (10, writers, side, side)."""
    rows = [line.split() for line in FONT.split("\n") if line]
    dots = np.array([[[dot == "#" for dot in row[d]] for row in rows] for d in range(10)])
    font = np.pad(dots.astype(np.float32), ((0, 0), (3, 3), (3, 3)))
    count = 10 * writers

    def vary(spread: float) -> Floats:
        return rng.normal(0, spread, (count, 1, 1)).astype(np.float32)

    # For every pixel, its place in the font: turned, slanted, scaled and bent by the writer.
    axis = np.arange(side, dtype=np.float32) - np.float32((side - 1) / 2)
    bend = _smooth(rng.normal(0, 0.6, (2 * count, 4, 4)), side).reshape(2, count, side, side)
    x, y = axis[None, None, :], axis[None, :, None]
    turn, slant, size = vary(0.12), vary(0.22), 1 + vary(0.08)
    across = (x + (turn + slant) * y) / (2.8 * size * (1 + vary(0.12))) + 5 + bend[0]
    down = (y - turn * x) / (2.8 * size) + 6 + bend[1]
    value = _between(np.repeat(font, writers, axis=0), down, across)
    ink = np.clip((value - 0.515 + vary(0.07)) * 4 + 0.5, 0, 1) * 255
    ink *= np.pad(np.ones((side - 2 * SHIFT,) * 2), SHIFT)  # the rim stays empty when it moves
    written: Bytes = ink.astype(np.uint8).reshape(10, writers, side, side)
    return written


def _patterns(shape: tuple[int, ...], classes: int, rng: Generator, writers: int = 20) -> Bytes:
    """Smooth random patterns, one a class, each in noisy versions: (classes, writers, *shape)."""
    side, channels = shape[0], shape[2] if len(shape) == 3 else 1
    fixed = np.random.default_rng((SEED, classes))  # the same classes in training and test
    prototypes = _smooth(fixed.normal(0, 45, (classes * channels, 5, 5)), side)
    noise = _smooth(rng.normal(0, 30, (writers * classes * channels, 8, 8)), side)
    versions = 128 + prototypes + noise.reshape(writers, *prototypes.shape)
    versions = versions.reshape(writers, classes, channels, side, side)
    found = np.clip(versions, 0, 255).astype(np.uint8).transpose(1, 0, 3, 4, 2)
    return np.ascontiguousarray(found).reshape(classes, writers, *shape)


def _smooth(knots: NDArray[np.float64], side: int) -> Floats:
    """Coarse grids (n, k, k), interpolated to (n, side, side)."""
    place = np.broadcast_to(np.linspace(0, knots.shape[1] - 1, side), (len(knots), side, side))
    return _between(knots.astype(np.float32), place.transpose(0, 2, 1), place)


def _between(grids: Floats, down: NDArray[np.floating], across: NDArray[np.floating]) -> Floats:
    """Bilinear interpolation: grid i read at its own places down[i], across[i]."""
    down, across = (np.clip(place, 0, grids.shape[1 + i] - 1.001)
                    for i, place in enumerate((down, across)))  # fmt: skip
    i, j = down.astype(int), across.astype(int)
    v, u = (down - i).astype(np.float32), (across - j).astype(np.float32)
    which = np.arange(len(grids))[:, None, None]
    upper = grids[which, i, j] * (1 - u) + grids[which, i, j + 1] * u
    lower = grids[which, i + 1, j] * (1 - u) + grids[which, i + 1, j + 1] * u
    found: Floats = upper * (1 - v) + lower * v
    return found
