"""MNIST, Fashion-MNIST and CIFAR-100, with or without internet; the result says which.

>>> data = labkit.datasets.mnist()                     # doctest: +SKIP
>>> (x_train, y_train), (x_test, y_test) = data        # doctest: +SKIP
>>> data                                               # doctest: +SKIP
MNIST: 60,000 train, 10,000 test, 28×28, 10 classes

Real images wherever they can be had: from this machine, or else by download within a timeout.
Without MNIST, `mnist()` gives the Fashion-MNIST of this machine. Synthetic data come last.
"""

from __future__ import annotations

from functools import cache

from labkit.datasets.dataset import Dataset, Origin
from labkit.datasets.download import cache_folder, download_files, local_files
from labkit.datasets.published import PUBLISHED
from labkit.datasets.synthetic import synthetic_images

__all__ = ["Dataset", "cache_folder", "cifar100", "fashion_mnist", "is_here", "mnist"]


def mnist() -> Dataset:
    """60,000 + 10,000 grey images of 28×28 in 10 classes: MNIST's digits, if they can be had.

    Else the clothes of Fashion-MNIST, if they are on this machine; else synthetic data.
    """
    return _load("mnist", instead="fashion_mnist")


def fashion_mnist() -> Dataset:
    """Photographs of clothes: 60,000 + 10,000 grey images of 28×28 in 10 classes.

    On Debian and Ubuntu, the package `dataset-fashion-mnist` brings them without a download.
    """
    return _load("fashion_mnist")


def cifar100() -> Dataset:
    """Small photographs: 50,000 + 10,000 colour images of 32×32 in 100 classes (fine labels)."""
    return _load("cifar100")


def is_here(name: str) -> bool:
    """Whether the published files of "mnist", "fashion_mnist" or "cifar100" are on this machine."""
    return bool(local_files(PUBLISHED[name]))


@cache
def _load(name: str, instead: str = "") -> Dataset:
    """The data set, loaded once a process."""
    source, note = PUBLISHED[name], ""
    origin: Origin = "cache"
    files = local_files(source)
    if not files:
        origin, note = "download", download_files(source)
        files = local_files(source)
    if not files and instead and is_here(instead):
        source, origin = PUBLISHED[instead], "cache"
        files = local_files(source)
        note = f"{note} So these are the images of {source.name}."
    if files:
        arrays = source.read(*files)
    else:
        origin = "synthetic"
        arrays = (
            *synthetic_images(source.train, source.shape, source.classes, test=False),
            *synthetic_images(source.test, source.shape, source.classes, test=True),
        )
    for array in arrays:
        array.setflags(write=False)
    x_train, y_train, x_test, y_test = arrays
    y_train, y_test = (y.reshape(-1, *source.label_shape) for y in (y_train, y_test))
    return Dataset(source.name, origin, x_train, y_train, x_test, y_test, source.classes, note)
