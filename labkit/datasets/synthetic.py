"""Synthetic images that a model can learn, in the shape of MNIST's."""

import numpy as np

from labkit.datasets.dataset import Bytes

BLOCK, SHIFT = 4, 3  # pixels
CLASSES, SIDE = 10, 28


def synthetic_images(count: int, *, test: bool) -> tuple[Bytes, Bytes]:
    """Returns `count` images and their labels; each class is equally frequent.

    Each class has a random pattern of bright blocks. An image mixes the pattern of its class with
    less of another one, moves it by a few pixels, and darkens every pixel by a random factor.

    >>> x, y = synthetic_images(20, test=False)
    >>> x.shape, sorted(y.tolist())[:4]
    ((20, 28, 28), [0, 0, 1, 1])
    """
    same = np.random.default_rng(CLASSES)  # the patterns of training and test images are the same
    patterns = same.random((CLASSES, SIDE // BLOCK, SIDE // BLOCK)) > 0.7
    patterns = patterns.repeat(BLOCK, axis=1).repeat(BLOCK, axis=2)  # (10, 7, 7) → (10, 28, 28)
    rng = np.random.default_rng((CLASSES, int(test)))
    labels = rng.permutation(np.arange(count) % CLASSES)
    others = rng.integers(CLASSES, size=count)
    share = rng.uniform(0.5, 1, (count, 1, 1)).astype(np.float32)
    images = np.empty((count, SIDE, SIDE), np.uint8)
    for start in range(0, count, 100):
        part = slice(start, start + 100)
        # (100, 1, 1) × (100, 28, 28): a share for each image
        mixed = share[part] * patterns[labels[part]] + (1 - share[part]) * patterns[others[part]]
        moved = np.roll(mixed, rng.integers(-SHIFT, SHIFT + 1, 2), axis=(1, 2))
        images[part] = 255 * moved * rng.random(moved.shape, np.float32)
    return images, labels.astype(np.uint8)
