"""MNIST and CIFAR-100 by one door, with or without internet; the result says which.

>>> data = labkit.datasets.mnist()                     # doctest: +SKIP
>>> (x_train, y_train), (x_test, y_test) = data        # doctest: +SKIP
>>> data                                               # doctest: +SKIP
MNIST stand-in (drawn by labkit): 60,000 train, 10,000 test, 28×28, 10 classes

First the cache of this machine, then a download checked by SHA-256, then a stand-in that labkit
draws: same shapes and sizes, other pictures, and a title that says so.
"""

from __future__ import annotations

import os
from typing import Literal

from labkit.datasets.cache import cache_folder
from labkit.datasets.dataset import Dataset
from labkit.kinds import LabError

__all__ = ["Dataset", "cache_folder", "cached", "cifar100", "mnist"]


def mnist(folder: str | os.PathLike[str] | None = None) -> Dataset:
    """Handwritten digits: 60,000 + 10,000 grey images of 28×28 in 10 classes.

    `folder` is where to look for the file and to keep it, in place of `cache_folder()`.
    """
    return _enter("mnist", folder)


def cifar100(folder: str | os.PathLike[str] | None = None) -> Dataset:
    """Small photographs: 50,000 + 10,000 colour images of 32×32 in 100 classes (fine labels).

    `folder` is where to look for the file and to keep it, in place of `cache_folder()`.
    """
    return _enter("cifar100", folder)


def cached(name: str) -> Literal["real", "stand-in", "none"]:
    """What is on this machine already, so that a class can be prepared.

    >>> labkit.datasets.cached("mnist")     # doctest: +SKIP
    'real'
    """
    from labkit.datasets.door import at_hand
    from labkit.datasets.sources import SOURCES

    key = str(name).lower().replace("-", "")
    if key not in SOURCES:
        raise LabError(f"There is no data set {name!r}. Ask for one of {', '.join(SOURCES)}.")
    return at_hand(SOURCES[key], cache_folder())


def _enter(key: str, folder: str | os.PathLike[str] | None) -> Dataset:
    from labkit.datasets.cache import chosen_folder
    from labkit.datasets.door import enter
    from labkit.datasets.sources import SOURCES

    return enter(SOURCES[key], chosen_folder(folder))
