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
from labkit.datasets.download import DownloadError, cache_folder, offline
from labkit.datasets.published import PUBLISHED, Arrays, Published
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
        _loaded[key] = _find(PUBLISHED[key], key)
    return _loaded[key]


def _find(source: Published, key: str) -> Dataset:
    paths = download.cached_files(source)
    if paths:
        return _dataset(source, "cache", source.read(*paths))
    note = download.obstacle(source)
    if not note:
        try:
            arrays, note = download.fetch(source)
            return _dataset(source, "download", arrays, note)
        except DownloadError as fault:
            note = f"{source.name} could not be downloaded: {fault}."
    splits = []
    for count, test in ((source.train, False), (source.test, True)):
        x, y = synthetic_images(
            count, source.shape, source.classes, digits=key == "mnist", test=test
        )
        splits += [x, y.reshape(count, *source.label_shape)]
    return _dataset(source, "synthetic", Arrays(*splits), note)


def _dataset(
    source: Published,
    origin: Literal["cache", "download", "synthetic"],
    arrays: Arrays,
    note: str = "",
) -> Dataset:
    for array in arrays:
        array.setflags(write=False)
    notes = (note,) if note else ()
    return Dataset(source.name, origin, *arrays, classes=source.classes, notes=notes)
