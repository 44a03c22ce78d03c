"""Find a data set's files on this machine, or download them with Keras' loader in bounded time."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from labkit.datasets.published import Arrays, Published
from labkit.plain import atomic_write
from labkit.progress import progress

__all__ = ["DownloadError", "cache_folder", "cached_files", "fetch", "obstacle", "offline"]

STALL_SECONDS = 10.0  # the longest wait for the server: its first answer, and any byte after it
AGAIN_SECONDS = 3600.0  # after a failure, how long no download is tried

# A process of its own, because it can be ended whatever it waits for (a name server, a handshake,
# a slow server), and because the kernel need not import TensorFlow for this. The first request
# finds a missing network before Keras is imported, which takes seconds.
_LOADER = """
import socket, sys, urllib.request
folder, url, stall, *files = sys.argv[1:]
socket.setdefaulttimeout(float(stall))
try:
    urllib.request.urlopen(url + files[0]).close()
    open(folder + "/answered", "w").close()
    from keras.utils import get_file
    for name, checksum in zip(files[::2], files[1::2]):
        get_file(name, origin=url + name, file_hash=checksum, cache_dir=folder, cache_subdir=".")
except Exception as fault:
    sys.exit("labkit: " + str(getattr(fault, "reason", fault)))
"""


class DownloadError(Exception):
    """Why a download failed, as the end of a sentence."""


def cache_folder() -> Path:
    """Where data sets are kept: LABKIT_CACHE, or Keras' own folder. It need not exist yet."""
    chosen = os.environ.get("LABKIT_CACHE", "").strip()
    return Path(chosen).expanduser().absolute() if chosen else _keras_folder()


def _keras_folder() -> Path:
    home = os.environ.get("KERAS_HOME") or os.path.expanduser("~/.keras")  # noqa: PTH111 (as Keras)
    return Path(home).absolute() / "datasets"


def offline() -> bool:
    """Whether LABKIT_OFFLINE forbids downloads."""
    return os.environ.get("LABKIT_OFFLINE", "").strip().lower() not in ("", "0", "no", "false")


def cached_files(source: Published) -> list[Path]:
    """The published files on this machine, their checksums verified; empty if they are not here."""
    if source.package is not None:
        paths = [source.package / name for name in source.files]
        if all(path.is_file() for path in paths):
            return paths
    for folder in (cache_folder(), _keras_folder()):
        paths = [folder / source.folder / name for name in source.files]
        checksums = source.files.values()
        if all(_fits(path, checksum) for path, checksum in zip(paths, checksums, strict=True)):
            return paths
    return []


def _fits(path: Path, checksum: str) -> bool:
    try:
        with path.open("rb") as file:
            algorithm = "sha256" if len(checksum) == 64 else "md5"
            return hashlib.file_digest(file, algorithm).hexdigest() == checksum
    except OSError:
        return False


def obstacle(source: Published) -> str:
    """Why no download is tried now, as a sentence; empty if one is."""
    if offline():
        return "LABKIT_OFFLINE is set, so nothing was downloaded."
    if os.environ.get("LABKIT_NETWORK") == "own":
        return (
            "This rank has a network of its own, without internet. Load the data in the notebook "
            "first: then the ranks find them in the cache."
        )
    with suppress(OSError):
        age = time.time() - _failure(source).stat().st_mtime
        if 0 <= age < AGAIN_SECONDS:
            return (
                "A download failed less than an hour ago. To try again now, delete "
                f"{_failure(source).name} in labkit.datasets.cache_folder() and restart the kernel."
            )
    return ""


def _failure(source: Published) -> Path:
    """An empty file whose time says when a download failed."""
    return cache_folder() / f"{source.name}.download-failed"


def fetch(source: Published) -> tuple[Arrays, str]:
    """The arrays of the data set, and a sentence if the files could not be kept in the cache."""
    with tempfile.TemporaryDirectory(prefix="labkit-") as place:
        try:
            _run_loader(source, Path(place))
        except DownloadError:
            with suppress(OSError):
                _failure(source).parent.mkdir(parents=True, exist_ok=True)
                _failure(source).touch()
            raise
        paths = [Path(place) / name for name in source.files]
        arrays = source.read(*paths)
        try:
            folder = cache_folder() / source.folder
            folder.mkdir(parents=True, exist_ok=True)
            for path in paths:
                atomic_write(folder / path.name, path.read_bytes())
        except OSError as fault:
            return arrays, (
                f"The files could not be kept ({fault.strerror or fault}). "
                "Set LABKIT_CACHE to a folder with space that you may write to."
            )
    return arrays, ""


def _run_loader(source: Published, place: Path) -> None:
    checks = [text for pair in source.files.items() for text in pair]
    command = [sys.executable, "-c", _LOADER, str(place), source.url, str(STALL_SECONDS), *checks]
    errors = place / "errors"
    began = time.monotonic()
    with (
        errors.open("wb") as file,
        progress(f"downloading {source.name}", source.size) as advance,
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=file) as loader,
    ):
        try:
            while loader.poll() is None:
                # A firewall may drop each of a server's many addresses: one limit for all of them.
                limit = source.time_limit if (place / "answered").exists() else STALL_SECONDS
                if time.monotonic() - began > limit:
                    raise DownloadError(f"it took longer than {limit:g} s")
                with suppress(subprocess.TimeoutExpired):
                    loader.wait(0.1)
                advance(sum(path.stat().st_size for path in place.iterdir()))
        finally:
            loader.kill()
    if loader.returncode:
        said = errors.read_text(errors="replace").rpartition("labkit: ")[2].strip()
        raise DownloadError(said or "the loader ended without a reason")
