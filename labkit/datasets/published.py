"""The published data sets: their files, checksums and shapes, and how the files are read."""

from __future__ import annotations

import gzip
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from labkit.datasets.dataset import Bytes

__all__ = ["PUBLISHED", "Arrays", "Published"]

Arrays = tuple[Bytes, Bytes, Bytes, Bytes]  # x_train, y_train, x_test, y_test


@dataclass(frozen=True)
class Published:
    """One data set as its authors published it; in form like MNIST unless it says otherwise."""

    name: str
    files: dict[str, str]  # file name: checksum (SHA-256, or MD5 where only that is published)
    size: int  # bytes of all files together
    read: Callable[..., Arrays]  # takes the path of each file
    url: str = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/"
    folder: str = "."  # in Keras' cache
    package: Path | None = None  # where a Debian package installs the same files
    train: int = 60_000
    test: int = 10_000
    shape: tuple[int, ...] = (28, 28)
    classes: int = 10
    label_shape: tuple[int, ...] = ()


def _read_npz(path: Path) -> Arrays:
    with np.load(path, allow_pickle=False) as archive:
        return archive["x_train"], archive["y_train"], archive["x_test"], archive["y_test"]


def _read_idx(*paths: Path) -> Arrays:
    """The four idx files: a header, whose last 4 bytes a dimension are its length, then bytes."""

    def array(path: Path) -> Bytes:
        content = gzip.decompress(path.read_bytes())
        shape = np.frombuffer(content, ">i4", count=content[3], offset=4)
        return np.frombuffer(content, np.uint8, offset=4 + 4 * content[3]).reshape(shape)

    x_train, y_train, x_test, y_test = map(array, paths)
    return x_train, y_train, x_test, y_test


def _read_cifar100(path: Path) -> Arrays:
    """CIFAR-100's binary records: coarse label, fine label, then a red, green and blue plane."""

    def split(archive: tarfile.TarFile, name: str) -> tuple[Bytes, Bytes]:
        file = archive.extractfile(f"cifar-100-binary/{name}.bin")
        assert file is not None, "its checksum is that of the published archive"
        records = np.frombuffer(file.read(), np.uint8).reshape(-1, 2 + 3 * 32 * 32)
        images = records[:, 2:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        return np.ascontiguousarray(images), records[:, 1].copy()

    with tarfile.open(path) as archive:
        return *split(archive, "train"), *split(archive, "test")


PUBLISHED = {
    # The file and checksum of keras.datasets.mnist.
    "mnist": Published(
        name="MNIST",
        files={"mnist.npz": "731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1"},
        size=11_490_434,
        read=_read_npz,
    ),
    # The files of keras.datasets.fashion_mnist; checksums from its README.
    "fashion_mnist": Published(
        name="Fashion-MNIST",
        files={
            "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
        },
        size=30_878_645,
        read=_read_idx,
        folder="fashion-mnist",
        package=Path("/usr/share/datasets/fashion-mnist"),  # dataset-fashion-mnist
    ),
    # The binary archive, because Keras' holds pickles. Checksum as in tensorflow_datasets.
    "cifar100": Published(
        name="CIFAR-100",
        url="https://www.cs.toronto.edu/~kriz/",
        files={
            "cifar-100-binary.tar.gz": (
                "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"
            )
        },
        size=168_513_733,
        read=_read_cifar100,
        train=50_000,
        shape=(32, 32, 3),
        classes=100,
        label_shape=(1,),
    ),
}
