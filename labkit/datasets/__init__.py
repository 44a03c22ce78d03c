"""MNIST, with or without internet; the result says what it is.

>>> data = labkit.datasets.mnist()                     # doctest: +SKIP
>>> (x_train, y_train), (x_test, y_test) = data        # doctest: +SKIP
>>> data                                               # doctest: +SKIP
MNIST: 60,000 train, 10,000 test, 28×28, 10 classes
"""

from __future__ import annotations

from functools import cache

from labkit.datasets.dataset import Dataset, Origin
from labkit.datasets.published import (
    cache_folder,
    download_mnist,
    fashion_is_here,
    mnist_is_here,
    read_fashion,
    read_mnist,
)
from labkit.datasets.synthetic import synthetic_images

__all__ = ["Dataset", "cache_folder", "fashion_is_here", "mnist", "mnist_is_here"]


@cache
def mnist() -> Dataset:
    """60,000 + 10,000 grey images of 28×28 in 10 classes: MNIST's digits, if they can be had.

    They are read from this machine, or else downloaded within a timeout. Without them it gives the
    clothes of Fashion-MNIST, if Debian's package `dataset-fashion-mnist` is installed; else
    synthetic data.
    """
    name, note = "MNIST", ""
    origin: Origin = "cache"
    if not mnist_is_here():
        origin, note = "download", download_mnist()
    if not note:
        arrays = read_mnist()
    elif fashion_is_here():
        name, origin, arrays = "Fashion-MNIST", "cache", read_fashion()
        note = f"{note} So these are the images of Fashion-MNIST."
    else:
        origin = "synthetic"
        arrays = *synthetic_images(60_000, test=False), *synthetic_images(10_000, test=True)
    for array in arrays:
        array.setflags(write=False)
    return Dataset(name, origin, *arrays, note=note)
