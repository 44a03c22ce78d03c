"""Synthetic images that a model can learn, in the shape of any data set."""

from __future__ import annotations

import numpy as np

from labkit.datasets.dataset import Bytes

__all__ = ["synthetic_images"]

BLOCK, SHIFT = 4, 3  # pixels


def synthetic_images(
    count: int, shape: tuple[int, ...], classes: int, *, test: bool
) -> tuple[Bytes, Bytes]:
    """`count` images of this shape and their labels (count,); each class is equally frequent.

    Each class has a random pattern of bright blocks. An image mixes the pattern of its class with
    less of another one, moves it by a few pixels, and darkens every pixel by a random factor.

    >>> x, y = synthetic_images(20, (28, 28), 10, test=False)
    >>> x.shape, sorted(y.tolist())[:4]
    ((20, 28, 28), [0, 0, 1, 1])
    """
    side = -(-shape[0] // BLOCK)
    same = np.random.default_rng(classes)  # the patterns of training and test images are the same
    patterns = same.random((classes, side, side, *shape[2:])) > 0.7
    patterns = patterns.repeat(BLOCK, axis=1).repeat(BLOCK, axis=2)[:, : shape[0], : shape[1]]
    rng = np.random.default_rng((classes, int(test)))
    labels = rng.permutation(np.arange(count) % classes)
    others = rng.integers(classes, size=count)
    share = rng.uniform(0.5, 1, (count, *(1,) * len(shape))).astype(np.float32)
    images = np.empty((count, *shape), np.uint8)
    for start in range(0, count, 100):
        part = slice(start, start + 100)
        mixed = share[part] * patterns[labels[part]] + (1 - share[part]) * patterns[others[part]]
        moved = np.roll(mixed, rng.integers(-SHIFT, SHIFT + 1, 2), axis=(1, 2))
        images[part] = 255 * moved * rng.random(moved.shape, np.float32)
    return images, labels.astype(np.uint8)
