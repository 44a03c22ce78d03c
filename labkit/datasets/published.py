"""The published images: find them on this machine, download MNIST within a timeout, read them."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import tempfile
import threading
import urllib.request
from http.client import HTTPException
from pathlib import Path

import numpy as np

from labkit.datasets.dataset import Bytes
from labkit.progress import progress

__all__ = ["cache_folder", "download_mnist", "fashion_is_here", "mnist_is_here"]

Arrays = tuple[Bytes, Bytes, Bytes, Bytes]  # x_train, y_train, x_test, y_test

# The file and checksum of keras.datasets.mnist.
MNIST_URL = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz"
MNIST_SHA256 = "731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1"
MNIST_BYTES = 11_490_434
# The files of Debian's package dataset-fashion-mnist, in the order of Arrays.
FASHION = Path("/usr/share/datasets/fashion-mnist")
FASHION_FILES = (
    "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz",
)  # fmt: skip
ANSWER_SECONDS = 2.0  # until the server's first answer
STALL_SECONDS = 10.0  # without a byte, once it has answered


def cache_folder() -> Path:
    """Where MNIST is kept: LABKIT_CACHE, or Keras' own folder. It need not exist yet."""
    keras = os.environ.get("KERAS_HOME") or "~/.keras"
    chosen = os.environ.get("LABKIT_CACHE") or f"{keras}/datasets"
    return Path(chosen).expanduser().absolute()


def mnist_is_here() -> bool:
    """Whether the published file is in the cache folder."""
    return _is_published(cache_folder() / "mnist.npz")


def read_mnist() -> Arrays:
    """The arrays of the file in the cache folder."""
    with np.load(cache_folder() / "mnist.npz", allow_pickle=False) as archive:
        return archive["x_train"], archive["y_train"], archive["x_test"], archive["y_test"]


def fashion_is_here() -> bool:
    """Whether Debian's package is installed."""
    return all((FASHION / name).is_file() for name in FASHION_FILES)


def read_fashion() -> Arrays:
    """The four idx files: a header, whose last 4 bytes a dimension are its length, then bytes."""

    def array(name: str) -> Bytes:
        content = gzip.decompress((FASHION / name).read_bytes())
        shape = np.frombuffer(content, ">i4", count=content[3], offset=4)
        return np.frombuffer(content, np.uint8, offset=4 + 4 * content[3]).reshape(shape)

    x_train, y_train, x_test, y_test = map(array, FASHION_FILES)
    return x_train, y_train, x_test, y_test


def download_mnist() -> str:
    """Bring MNIST into the cache folder; why that was not possible, or an empty string."""
    if os.environ.get("LABKIT_OFFLINE", "0") not in ("", "0"):
        return "LABKIT_OFFLINE is set, so nothing was downloaded."
    if os.environ.get("LABKIT_NETWORK") == "own":
        return "This rank has a network of its own, without internet: load the data before it runs."
    target = cache_folder()
    try:
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target, ignore_cleanup_errors=True) as folder:
            loaded = Path(folder, "mnist.npz")
            reason = _load(loaded)
            if not reason:
                loaded.replace(target / loaded.name)
    except OSError as fault:
        return f"{target} cannot be written ({fault}): set LABKIT_CACHE to a folder of yours."
    return f"MNIST could not be downloaded: {reason}." if reason else ""


def _load(path: Path) -> str:
    """Load the file; why that failed, or an empty string."""
    answered = threading.Event()
    faults: list[object] = []

    def load() -> None:
        try:
            with (
                urllib.request.urlopen(MNIST_URL, timeout=STALL_SECONDS) as answer,
                path.open("wb") as file,
            ):
                answered.set()
                shutil.copyfileobj(answer, file)
        except (OSError, HTTPException) as fault:
            faults.append(getattr(fault, "reason", fault))
            answered.set()

    # In a thread, because a name server that does not answer knows no timeout, and because a
    # firewall may drop each of a server's many addresses.
    loader = threading.Thread(target=load, daemon=True)
    loader.start()
    if not answered.wait(ANSWER_SECONDS):
        return f"no answer within {ANSWER_SECONDS:g} s"
    with progress("downloading MNIST", MNIST_BYTES) as advance:
        while loader.is_alive():
            loader.join(0.1)
            advance(path.stat().st_size if path.exists() else 0)
    if faults:
        return str(faults[0])
    return "" if _is_published(path) else "the file is not the published one"


def _is_published(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == MNIST_SHA256
    except OSError:
        return False
