"""MNIST, with or without internet; the data set says which images it has.

>>> data = labkit.datasets.mnist()                     # doctest: +SKIP
>>> (x_train, y_train), (x_test, y_test) = data        # doctest: +SKIP
>>> data                                               # doctest: +SKIP
MNIST: 60,000 train, 10,000 test, 28×28, 10 classes
"""

from dataclasses import replace
from functools import cache

from labkit.datasets.dataset import Dataset
from labkit.datasets.published import FASHION, MNIST, Arrays, Published, cache_folder
from labkit.datasets.synthetic import synthetic_images


def mnist() -> Dataset:
    """Returns 60,000 + 10,000 grey images of 28×28 in 10 classes, MNIST's if they can be had.

    They are read from this machine, or else downloaded within a timeout. Without them it gives the
    clothes of Fashion-MNIST, if Debian's package `dataset-fashion-mnist` is installed; else
    synthetic data. A download that failed is tried again by the next call.
    """
    try:
        return _published(MNIST)
    except LookupError as fault:
        return _other(FASHION, str(fault))


@cache  # which keeps no exception
def _published(images: Published) -> Dataset:
    here = images.is_here()
    if not here and (reason := images.download()):
        raise LookupError(reason)
    return Dataset(images.name, "cache" if here else "download", *_read_only(images.read()))


@cache
def _other(images: Published, note: str) -> Dataset:
    if images.is_here():
        note = f"{note} So these are the images of {images.name}."
        return replace(_published(images), note=note)
    return Dataset(MNIST.name, "synthetic", *_synthetic(), note=note)


@cache
def _synthetic() -> Arrays:
    train, test = synthetic_images(60_000, test=False), synthetic_images(10_000, test=True)
    return _read_only((*train, *test))


def _read_only(arrays: Arrays) -> Arrays:
    for array in arrays:
        array.setflags(write=False)
    return arrays
