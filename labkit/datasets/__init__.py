"""MNIST, Fashion-MNIST and CIFAR-100, with or without internet; the result says which.

>>> data = labkit.datasets.mnist()                     # doctest: +SKIP
>>> (x_train, y_train), (x_test, y_test) = data        # doctest: +SKIP
>>> data                                               # doctest: +SKIP
MNIST: 60,000 train, 10,000 test, 28×28, 10 classes

The published files from this machine, or else a download in bounded time, or else synthetic data
of the same shapes, whose label says so.
"""

from __future__ import annotations

from typing import Literal

from labkit.arguments import one_of
from labkit.datasets import download
from labkit.datasets.dataset import Dataset
from labkit.datasets.download import cache_folder, offline
from labkit.datasets.published import PUBLISHED
from labkit.datasets.synthetic import synthetic_images

__all__ = ["Dataset", "cache_folder", "cifar100", "fashion_mnist", "mnist", "offline", "state"]

_loaded: dict[str, Dataset] = {}


def mnist() -> Dataset:
    """Handwritten digits: 60,000 + 10,000 grey images of 28×28 in 10 classes."""
    return _load("mnist")


def fashion_mnist() -> Dataset:
    """Photographs of clothes: 60,000 + 10,000 grey images of 28×28 in 10 classes.

    On Debian and Ubuntu, the package `dataset-fashion-mnist` brings them without a download.
    """
    return _load("fashion_mnist")


def cifar100() -> Dataset:
    """Small photographs: 50,000 + 10,000 colour images of 32×32 in 100 classes (fine labels)."""
    return _load("cifar100")


def state(name: str) -> Literal["cached", "download", "synthetic"]:
    """What the next call of `mnist()` and the others will give; this does not use the network.

    "cached": the published files are here. "download": they are not, a download will be tried.
    "synthetic": neither, because LABKIT_OFFLINE is set or a download failed within the last hour.
    """
    source = PUBLISHED[one_of("name", name, PUBLISHED)]
    if download.cached_files(source):
        return "cached"
    return "synthetic" if download.obstacle(source) else "download"


def _load(key: str) -> Dataset:
    """The data set, loaded once a process."""
    if key not in _loaded:
        source = PUBLISHED[key]
        origin, arrays, note = download.find(source)
        if arrays is None:
            digits = key == "mnist"
            arrays = (
                *synthetic_images(source.train, source.shape, source.classes, digits, test=False),
                *synthetic_images(source.test, source.shape, source.classes, digits, test=True),
            )
        x_train, y_train, x_test, y_test = arrays
        for array in arrays:
            array.setflags(write=False)
        y_train, y_test = (y.reshape(-1, *source.label_shape) for y in (y_train, y_test))
        _loaded[key] = Dataset(
            source.name, origin, x_train, y_train, x_test, y_test, source.classes, note
        )
    return _loaded[key]
