"""The published data sets: their files, checksums and shapes, and how the files are read."""

from __future__ import annotations

import gzip
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["PUBLISHED", "Arrays", "Published"]


class Arrays(NamedTuple):
    """Images and labels of both splits, in Keras' names and shapes."""

    x_train: NDArray[np.uint8]
    y_train: NDArray[np.uint8]
    x_test: NDArray[np.uint8]
    y_test: NDArray[np.uint8]


@dataclass(frozen=True)
class Published:
    """One data set as its authors published it."""

    name: str
    url: str  # the address of the folder
    files: dict[str, str]  # file name: checksum (SHA-256, or MD5 where only that is published)
    size: int  # bytes of all files together
    time_limit: float  # seconds for the whole download
    read: Callable[..., Arrays]  # takes the path of each file
    train: int
    test: int
    shape: tuple[int, ...]
    classes: int
    label_shape: tuple[int, ...] = ()
    folder: str = "."  # in Keras' cache
    package: Path | None = None  # where a Debian package installs the same files


def _read_npz(path: Path) -> Arrays:
    import numpy as np

    with np.load(path, allow_pickle=False) as archive:
        return Arrays(**{name: archive[name] for name in Arrays._fields})


def _read_idx(*paths: Path) -> Arrays:
    """The four idx files: a header, whose last 4 bytes a dimension are its length, then bytes."""
    import numpy as np

    def array(path: Path) -> NDArray[np.uint8]:
        content = gzip.decompress(path.read_bytes())
        dimensions = content[3]
        shape = np.frombuffer(content, ">i4", count=dimensions, offset=4)
        return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)

    return Arrays(*map(array, paths))


def _read_cifar100(path: Path) -> Arrays:
    """CIFAR-100's binary records: coarse label, fine label, then a red, green and blue plane."""
    import numpy as np

    found = {}
    with tarfile.open(path, mode="r|gz") as archive:
        for member in archive:
            file = archive.extractfile(member)
            if file is not None and member.name.endswith(("train.bin", "test.bin")):
                found[Path(member.name).stem] = np.frombuffer(file.read(), np.uint8)

    def split(content: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        records = content.reshape(-1, 2 + 3 * 32 * 32)
        images = records[:, 2:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        return np.ascontiguousarray(images), records[:, 1:2].copy()

    return Arrays(*split(found["train"]), *split(found["test"]))


PUBLISHED = {
    # The file and checksum of keras.datasets.mnist.
    "mnist": Published(
        name="MNIST",
        url="https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
        files={"mnist.npz": "731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1"},
        size=11_490_434,
        time_limit=120.0,
        read=_read_npz,
        train=60_000,
        test=10_000,
        shape=(28, 28),
        classes=10,
    ),
    # The files of keras.datasets.fashion_mnist; checksums from its README.
    "fashion_mnist": Published(
        name="Fashion-MNIST",
        url="https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
        files={
            "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
        },
        size=30_878_645,
        time_limit=180.0,
        read=_read_idx,
        train=60_000,
        test=10_000,
        shape=(28, 28),
        classes=10,
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
        time_limit=900.0,
        read=_read_cifar100,
        train=50_000,
        test=10_000,
        shape=(32, 32, 3),
        classes=100,
        label_shape=(1,),
    ),
}
