"""Published images: find them on this machine, download them within a timeout, read them.

A record describes each data set. Fashion-MNIST as a download would be these lines:

>>> images = Published("Fashion-MNIST", "fashion.npz", _read_npz, url="https://...", sha256="...")
"""

import gzip
import hashlib
import os
import shutil
import tempfile
import threading
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

import numpy as np

from labkit.centre import centre
from labkit.datasets.dataset import Bytes
from labkit.progress import progress

Arrays = tuple[Bytes, Bytes, Bytes, Bytes]  # x_train, y_train, x_test, y_test
ANSWER_SECONDS = 2.0  # until the server's first answer
STALL_SECONDS = 10.0  # without a byte, once it has answered


def _read_npz(file: Path) -> Arrays:
    with np.load(file, allow_pickle=False) as archive:
        return archive["x_train"], archive["y_train"], archive["x_test"], archive["y_test"]


def _read_idx(folder: Path) -> Arrays:
    """Four idx files: a header, whose last 4 bytes a dimension are its length, then bytes."""

    def array(name: str) -> Bytes:
        content = gzip.decompress((folder / f"{name}-ubyte.gz").read_bytes())
        shape = np.frombuffer(content, ">i4", count=content[3], offset=4)  # (60000, 28, 28)
        return np.frombuffer(content, np.uint8, offset=4 + 4 * content[3]).reshape(shape)

    names = "train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"
    x_train, y_train, x_test, y_test = map(array, names)
    return x_train, y_train, x_test, y_test


def cache_folder() -> Path:
    """Returns MNIST's folder: LABKIT_CACHE, the centre's, or Keras' own. It may not exist."""
    keras = os.environ.get("KERAS_HOME") or "~/.keras"
    chosen = os.environ.get("LABKIT_CACHE") or centre().data or f"{keras}/datasets"
    return Path(chosen).expanduser().absolute()


@dataclass(frozen=True)
class Published:
    """A published data set: where it lies, how it is read, and where it can be downloaded.

    `path` is a file of the cache folder, or an absolute path where a package of the system puts it.
    Without `url` it is never downloaded; a downloaded file must have this `sha256`.
    """

    name: str
    path: str
    read_from: Callable[[Path], Arrays]
    url: str = ""
    sha256: str = ""
    size: int = 0

    @property
    def place(self) -> Path:
        """Where it lies, or would lie."""
        return cache_folder() / self.path

    def is_here(self) -> bool:
        """Returns whether it is on this machine, unchanged."""
        return self._is_unchanged(self.place) if self.sha256 else self.place.exists()

    def read(self) -> Arrays:
        """Returns its images and labels."""
        return self.read_from(self.place)

    def _is_unchanged(self, file: Path) -> bool:
        try:
            with file.open("rb") as content:
                return hashlib.file_digest(content, "sha256").hexdigest() == self.sha256
        except OSError:
            return False

    def download(self) -> str:
        """Download it into the cache folder. Returns why that was not possible, or ""."""
        if os.environ.get("LABKIT_OFFLINE", "0") not in ("", "0"):
            return "LABKIT_OFFLINE is set, so nothing was downloaded."
        if os.environ.get("LABKIT_NETWORK") == "own":
            return "This rank's own network has no internet: load the data before it runs."
        target = cache_folder()
        try:
            target.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=target, ignore_cleanup_errors=True) as folder:
                loaded = Path(folder, self.path)
                reason = self._load(loaded)
                if not reason:
                    loaded.replace(self.place)
        except OSError as fault:
            return f"{target} cannot be written ({fault}): set LABKIT_CACHE to a folder of yours."
        return f"{self.name} could not be downloaded: {reason}." if reason else ""

    def _load(self, path: Path) -> str:
        """Load the file. Returns why that failed, or ""."""
        answered = threading.Event()
        faults: list[object] = []

        def load() -> None:
            try:
                with (
                    urllib.request.urlopen(self.url, timeout=STALL_SECONDS) as answer,  # noqa: S310
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
        with progress(f"downloading {self.name}", self.size) as advance:
            while loader.is_alive():
                loader.join(0.1)
                advance(path.stat().st_size if path.exists() else 0)
        if faults:
            return str(faults[0])
        return "" if self._is_unchanged(path) else "the file is not the published one"


# The file and checksum of keras.datasets.mnist.
MNIST = Published(
    "MNIST",
    "mnist.npz",
    _read_npz,
    "https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz",
    "731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1",
    11_490_434,
)
# Debian's package dataset-fashion-mnist.
FASHION = Published("Fashion-MNIST", "/usr/share/datasets/fashion-mnist", _read_idx)
