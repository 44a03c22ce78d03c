"""Find a data set's files on this machine, or download them in bounded time."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import threading
import time
import urllib.request
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path

from labkit.datasets.dataset import Origin
from labkit.datasets.published import Arrays, Published
from labkit.plain import atomic_write
from labkit.progress import progress

__all__ = ["cache_folder", "cached_files", "find", "obstacle", "offline"]

STALL_SECONDS = 10.0  # the longest wait for the server: its first answer, and any byte after it
SLOWEST = 100_000  # bytes per second of a download that is worth waiting for
AGAIN_SECONDS = 3600.0  # after a failure, how long no download is tried


def cache_folder() -> Path:
    """Where data sets are kept: LABKIT_CACHE, or Keras' own folder. It need not exist yet."""
    keras = os.environ.get("KERAS_HOME") or "~/.keras"
    chosen = os.environ.get("LABKIT_CACHE", "").strip() or f"{keras}/datasets"
    return Path(chosen).expanduser().absolute()


def offline() -> bool:
    """Whether LABKIT_OFFLINE forbids downloads."""
    return os.environ.get("LABKIT_OFFLINE", "").strip().lower() not in ("", "0", "no", "false")


def find(source: Published) -> tuple[Origin, Arrays | None, str]:
    """Where the published arrays come from, the arrays, and a note; None if they cannot be had."""
    paths = cached_files(source)
    if paths:
        return "cache", source.read(*paths), ""
    note = obstacle(source)
    if note:
        return "synthetic", None, note
    with tempfile.TemporaryDirectory(prefix="labkit-", ignore_cleanup_errors=True) as folder:
        reason = _download(source, Path(folder))
        if reason:
            with suppress(OSError):
                cache_folder().mkdir(parents=True, exist_ok=True)
                _failure(source).touch()
            return "synthetic", None, f"{source.name} could not be downloaded: {reason}."
        paths = [Path(folder) / name for name in source.files]
        arrays = source.read(*paths)
        try:
            kept = cache_folder() / source.folder
            kept.mkdir(parents=True, exist_ok=True)
            for path in paths:
                atomic_write(kept / path.name, path.read_bytes())
        except OSError as fault:
            note = (
                f"The files could not be kept ({fault.strerror or fault}). "
                "Set LABKIT_CACHE to a folder with space that you may write to."
            )
    return "download", arrays, note


def cached_files(source: Published) -> list[Path]:
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


def obstacle(source: Published) -> str:
    """Why no download is tried now, as a sentence; empty if one is."""
    if offline():
        return "LABKIT_OFFLINE is set, so nothing was downloaded."
    if os.environ.get("LABKIT_NETWORK") == "own":
        return (
            "This rank has a network of its own, without internet. Load the data in the notebook "
            "first: then the ranks find them in the cache."
        )
    failure = _failure(source)
    with suppress(OSError):
        if 0 <= time.time() - failure.stat().st_mtime < AGAIN_SECONDS:
            return (
                "A download failed less than an hour ago. To try again now, delete "
                f"{failure.name} in labkit.datasets.cache_folder() and restart the kernel."
            )
    return ""


def _failure(source: Published) -> Path:
    """An empty file whose time says when a download failed."""
    return cache_folder() / f"{source.name}.download-failed"


def _download(source: Published, folder: Path) -> str:
    """Load the files into the folder; why that failed, as the end of a sentence."""
    faults: list[Exception] = []

    def load() -> None:
        try:
            for name in source.files:
                url = source.url + name
                with (
                    urllib.request.urlopen(url, timeout=STALL_SECONDS) as answer,  # noqa: S310 (https)
                    (folder / name).open("wb") as file,
                ):
                    shutil.copyfileobj(answer, file)
        except (OSError, HTTPException) as fault:
            faults.append(fault)

    # A thread can be left behind, whatever it waits for: a name server knows no timeout.
    loader = threading.Thread(target=load, daemon=True)
    loader.start()
    began = time.monotonic()
    with progress(f"downloading {source.name}", source.size) as advance:
        while loader.is_alive():
            files = list(folder.iterdir())  # the first one exists when the server has answered
            # A firewall may drop each of a server's many addresses: one limit for all of them.
            limit = source.size / SLOWEST if files else STALL_SECONDS
            if time.monotonic() - began > limit:
                return f"it took longer than {limit:g} s"
            loader.join(0.1)
            advance(sum(path.stat().st_size for path in files))
    if faults:
        return str(getattr(faults[0], "reason", faults[0]))
    wrong = [name for name in source.files if not _is_published(folder / name, source)]
    return f"{wrong[0]} is not the published file" if wrong else ""
