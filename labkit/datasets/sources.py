"""What the two data sets are: their published files, their shapes, and who draws a stand-in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from labkit.datasets import archives
from labkit.datasets.download import Deadlines

if TYPE_CHECKING:
    from labkit.datasets.archives import Arrays

__all__ = ["CIFAR100", "MNIST", "SOURCES", "Source"]

SEED = 1906  # any number; another one is another set of writers and scenes


@dataclass(frozen=True)
class Source:
    """One data set: the published file, what must be in it, and its stand-in."""

    key: str
    name: str
    file: str
    url: str
    sha256: str
    size: int
    deadlines: Deadlines
    train: int
    test: int
    shape: tuple[int, ...]
    classes: int
    read: Callable[[BinaryIO, Source], Arrays]
    draw: Callable[..., Any]
    # Goes up with every change of what is drawn, so that an older drawing is never mixed up.
    recipe: int
    # The checksum of the drawn arrays: the same with NumPy 2.0 to 2.5, with and without AVX.
    drawn_sha256: str

    @property
    def stand_in(self) -> str:
        """The name of the file that keeps the drawn stand-in."""
        return f"{self.key}-stand-in-{self.recipe}.npz"


def _digits(count: int, split: int, advance: Callable[[int], None]) -> Any:
    from labkit.datasets.digits import draw_digits

    return draw_digits(count, SEED, split, advance)


def _scenes(count: int, split: int, advance: Callable[[int], None]) -> Any:
    from labkit.datasets.scenes import draw_scenes

    return draw_scenes(count, SEED, split, advance)


# Checksum as in Keras' own mnist.py; size as its downloads print it.
MNIST = Source(
    key="mnist",
    name="MNIST",
    file="mnist.npz",
    url="https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz",
    sha256="731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1",
    size=11_490_434,
    deadlines=Deadlines(total_s=180.0),
    train=60_000,
    test=10_000,
    shape=(28, 28),
    classes=10,
    read=archives.read_npz,
    draw=_digits,
    recipe=1,
    drawn_sha256="1c84c44d5642d9c9d6a17a9d8ef1893904af7f8a9a444dd14593be6e2cea17fb",
)

# The binary archive, because the other one holds pickles. Checksum and size as in
# tensorflow_datasets' url_checksums/cifar100.txt.
CIFAR100 = Source(
    key="cifar100",
    name="CIFAR-100",
    file="cifar-100-binary.tar.gz",
    url="https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
    sha256="58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
    size=168_513_733,
    deadlines=Deadlines(total_s=900.0),
    train=50_000,
    test=10_000,
    shape=(32, 32, 3),
    classes=100,
    read=archives.read_cifar100,
    draw=_scenes,
    recipe=1,
    drawn_sha256="7d4d18b206f2c9870ff9542132d2494ade941307106fb3f3fb51687c07da166c",
)

SOURCES = {source.key: source for source in (MNIST, CIFAR100)}
