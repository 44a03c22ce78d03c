"""Reading and writing the files that hold images and labels: no pickle, no surprise in size.

Every array is checked against what it must be before its bytes are read, and is read-only after,
so that one lesson cannot spoil the data of another.
"""

from __future__ import annotations

import hashlib
import os
import tarfile
import zipfile
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from labkit.progress import unseen

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from labkit.datasets.sources import Source

__all__ = ["Arrays", "DamagedError", "content_sha256", "look_into", "read_cifar100", "read_npz",
           "read_stand_in", "whole_sha256", "write_stand_in"]  # fmt: skip

DIGEST_BYTES = 32


class DamagedError(Exception):
    """Why a file is not what it must be, as the end of a sentence."""


class Arrays(NamedTuple):
    """Images and labels of both splits, in Keras' names."""

    x_train: NDArray[np.uint8]
    y_train: NDArray[np.uint8]
    x_test: NDArray[np.uint8]
    y_test: NDArray[np.uint8]


def whole_sha256(file: BinaryIO) -> str:
    """The checksum of an open file from its beginning; it stands at its beginning again after."""
    file.seek(0)
    digest = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
    file.seek(0)
    return digest


def content_sha256(arrays: Arrays) -> str:
    """The checksum of what is in the arrays, however a file packs them."""
    digest = hashlib.sha256()
    for name, array in arrays._asdict().items():
        digest.update(f"{name} {array.dtype.str} {array.shape};".encode())
        digest.update(memoryview(array).cast("B"))
    return digest.hexdigest()


def read_npz(file: BinaryIO, source: Source) -> Arrays:
    """The four arrays of an .npz file such as Keras' mnist.npz."""
    return _read_npz(file, source)[0]


def read_stand_in(file: BinaryIO, source: Source) -> Arrays:
    """The four arrays of a stand-in that `write_stand_in` wrote, checked against its checksum."""
    look_into(file, source)
    arrays, digest = _read_npz(file, source, with_digest=True)
    if digest.hex() != content_sha256(arrays):
        raise DamagedError("its content does not fit its checksum")
    return arrays


def look_into(file: BinaryIO, source: Source) -> bool:
    """Whether this stand-in is the reference drawing, by its stated checksum alone.

    A file that is not whole, or that another version of labkit drew, raises DamagedError.
    """
    _sane_size(file, source)
    try:
        with zipfile.ZipFile(file) as archive:
            names = set(archive.namelist()) - {"reference.npy"}
            if names != {f"{name}.npy" for name in (*Arrays._fields, "sha256")}:
                raise DamagedError("a part of it is missing")
            drawn = _digest(archive, "sha256")
            meant = _digest(archive, "reference") if "reference.npy" in archive.namelist() else ""
    except DamagedError:
        raise
    except Exception as fault:
        raise DamagedError("it cannot be unpacked") from fault
    if source.drawn_sha256 not in ("", drawn, meant):
        raise DamagedError("another version of labkit drew it")
    return source.drawn_sha256 in ("", drawn)


def _digest(archive: zipfile.ZipFile, name: str) -> str:
    return _member(archive, name, (DIGEST_BYTES,)).tobytes().hex()


def _sane_size(file: BinaryIO, source: Source) -> None:
    plain = (source.train + source.test) * (1 + _items(source.shape))
    if os.fstat(file.fileno()).st_size > 1.1 * plain + 100_000:
        raise DamagedError("it is larger than its content can be")


def write_stand_in(
    file: BinaryIO,
    arrays: Arrays,
    advance: Callable[[int], None] = unseen,
    reference: str = "",
) -> None:
    """Write an .npz file that also holds the checksum of its content.

    Where the drawing differs from its `reference` checksum, that one is kept beside it: it says
    that drawing again would not help. Compressed a little: half the size on disk, and still read
    in a fraction of a second.
    """
    import numpy as np

    digest = content_sha256(arrays)
    members = {**arrays._asdict(), "sha256": np.frombuffer(bytes.fromhex(digest), np.uint8)}
    if reference not in ("", digest):
        members["reference"] = np.frombuffer(bytes.fromhex(reference), np.uint8)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for done, (name, array) in enumerate(members.items()):
            # A fixed date, so that the same content is the same file.
            member = zipfile.ZipInfo(f"{name}.npy")
            member.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(member, "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)
            advance(done + 1)


def read_cifar100(file: BinaryIO, source: Source) -> Arrays:
    """The images and fine labels of CIFAR-100's binary archive."""
    wanted = {"train.bin": source.train, "test.bin": source.test}
    found = {}
    try:
        with tarfile.open(fileobj=file, mode="r|gz") as archive:
            for member in archive:
                name = member.name.rpartition("/")[2]
                if name not in wanted or not member.isfile():
                    continue
                count = wanted[name]
                entry = archive.extractfile(member)
                length = count * (2 + _items(source.shape))
                if entry is None or member.size != length or name in found:
                    raise DamagedError(f"its {name} does not hold {count:,} images")
                found[name] = _records(entry.read(length), count, source)
                if len(found) == len(wanted):
                    break
    except DamagedError:
        raise
    # Whatever a damaged file makes the unpackers raise, and it is a long list, means the same.
    except Exception as fault:
        raise DamagedError("it cannot be unpacked") from fault
    if len(found) != len(wanted):
        raise DamagedError("a part of it is missing")
    return _checked(Arrays(*found["train.bin"], *found["test.bin"]), source)


def _records(
    content: bytes, count: int, source: Source
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Coarse label, fine label, then red, green and blue planes, image after image."""
    import numpy as np

    height, width, channels = source.shape
    if len(content) != count * (2 + height * width * channels):
        raise DamagedError("it ends too early")
    records = np.frombuffer(content, np.uint8).reshape(count, -1)
    planes = records[:, 2:].reshape(count, channels, height, width)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), records[:, 1].copy()


def _read_npz(file: BinaryIO, source: Source, with_digest: bool = False) -> tuple[Arrays, bytes]:
    wanted = {
        "x_train": (source.train, *source.shape),
        "y_train": (source.train,),
        "x_test": (source.test, *source.shape),
        "y_test": (source.test,),
    }
    try:
        with zipfile.ZipFile(file) as archive:
            arrays = Arrays(**{name: _member(archive, name, wanted[name]) for name in wanted})
            digest = _member(archive, "sha256", (DIGEST_BYTES,)).tobytes() if with_digest else b""
    except DamagedError:
        raise
    except Exception as fault:
        raise DamagedError("it cannot be unpacked") from fault
    return _checked(arrays, source), digest


def _member(archive: zipfile.ZipFile, name: str, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """One array, whose header must say exactly what is expected before anything is read."""
    import numpy as np

    with archive.open(f"{name}.npy") as entry:
        version = np.lib.format.read_magic(entry)
        if version != (1, 0):
            raise DamagedError(f"its {name} is written in another format")
        found, fortran, dtype = np.lib.format.read_array_header_1_0(entry)
        if found != shape or fortran or dtype != np.dtype(np.uint8):
            raise DamagedError(f"its {name} has shape {found} where {shape} belongs")
        content = entry.read(_items(shape))
        if len(content) != _items(shape) or entry.read(1):
            raise DamagedError(f"its {name} is not as long as it says")
    return np.frombuffer(content, np.uint8).reshape(shape)


def _checked(arrays: Arrays, source: Source) -> Arrays:
    for labels, images in ((arrays.y_train, arrays.x_train), (arrays.y_test, arrays.x_test)):
        if len(labels) and int(labels.max()) >= source.classes:
            raise DamagedError(f"it has labels above {source.classes - 1}")
        if len(images) and images.min() == images.max():
            raise DamagedError("its images are empty")
    for array in arrays:
        array.setflags(write=False)
    return arrays


def _items(shape: tuple[int, ...]) -> int:
    items = 1
    for length in shape:
        items *= length
    return items
