"""Find a data set's files on this machine, or download them within a timeout."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import threading
import urllib.request
from http.client import HTTPException
from pathlib import Path

from labkit.datasets.published import Published
from labkit.progress import progress

__all__ = ["cache_folder", "download_files", "local_files"]

ANSWER_SECONDS = 2.0  # until the server's first answer
STALL_SECONDS = 10.0  # without a byte, once it has answered


def cache_folder() -> Path:
    """Where data sets are kept: LABKIT_CACHE, or Keras' own folder. It need not exist yet."""
    keras = os.environ.get("KERAS_HOME") or "~/.keras"
    chosen = os.environ.get("LABKIT_CACHE") or f"{keras}/datasets"
    return Path(chosen).expanduser().absolute()


def local_files(source: Published) -> list[Path]:
    """The published files on this machine, their checksums verified; empty if they are not here."""
    if source.package and all((source.package / name).is_file() for name in source.files):
        return [source.package / name for name in source.files]
    paths = [cache_folder() / source.folder / name for name in source.files]
    return paths if all(_is_published(path, source) for path in paths) else []


def _is_published(path: Path, source: Published) -> bool:
    checksum = source.files[path.name]
    try:
        with path.open("rb") as file:
            algorithm = "sha256" if len(checksum) == 64 else "md5"
            return hashlib.file_digest(file, algorithm).hexdigest() == checksum
    except OSError:
        return False


def download_files(source: Published) -> str:
    """Bring the files into the cache folder; why that was not possible, or an empty string."""
    if os.environ.get("LABKIT_OFFLINE", "0") not in ("", "0"):
        return "LABKIT_OFFLINE is set, so nothing was downloaded."
    if os.environ.get("LABKIT_NETWORK") == "own":
        return "This rank has a network of its own, without internet: load the data before it runs."
    target = cache_folder() / source.folder
    try:
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target, ignore_cleanup_errors=True) as folder:
            reason = _load(source, Path(folder))
            if not reason:
                for name in source.files:
                    Path(folder, name).replace(target / name)
    except OSError as fault:
        return f"{target} cannot be written ({fault}): set LABKIT_CACHE to a folder of yours."
    return f"{source.name} could not be downloaded: {reason}." if reason else ""


def _load(source: Published, folder: Path) -> str:
    """Load the files into a folder; why that failed, or an empty string."""
    answered = threading.Event()
    faults: list[object] = []

    def load() -> None:
        try:
            for name in source.files:
                url = source.url + name
                with (
                    urllib.request.urlopen(url, timeout=STALL_SECONDS) as answer,  # noqa: S310 (https)
                    (folder / name).open("wb") as file,
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
    with progress(f"downloading {source.name}", source.size) as advance:
        while loader.is_alive():
            loader.join(0.1)
            advance(sum(path.stat().st_size for path in folder.iterdir()))
    if faults:
        return str(faults[0])
    wrong = [name for name in source.files if not _is_published(folder / name, source)]
    return f"{wrong[0]} is not the published file" if wrong else ""
