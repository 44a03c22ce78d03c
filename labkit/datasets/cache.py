"""Files that several processes share: written whole or not at all, prepared by one at a time."""

from __future__ import annotations

import errno
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from labkit.kinds import LabError
from labkit.progress import progress

__all__ = ["alone", "cache_folder", "chosen_folder", "failed_lately", "keep", "makeshift_folder",
           "reason", "remember_failure", "sweep"]  # fmt: skip

# A writer touches its file at least every few seconds; one untouched for so long is dead.
STALE_S = 600.0
PART = ".labkit-part"
WAIT_S = 120.0
AGAIN_S = 3600.0

_WHY = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "your disk quota is used up",
    errno.EROFS: "the disk is read-only",
    errno.EACCES: "you may not write there",
    errno.EPERM: "you may not write there",
    errno.ENOTDIR: "it is a file, not a folder",
    errno.EEXIST: "it is a file, not a folder",
}


def cache_folder() -> Path:
    """Where labkit keeps data sets: LABKIT_CACHE, or the usual place of this system.

    The folder need not exist yet.
    """
    chosen = os.environ.get("LABKIT_CACHE", "").strip()
    if chosen:
        return _absolute(chosen)
    import platformdirs

    folder = Path(platformdirs.user_cache_dir("labkit"))
    # Without a home folder the usual place is a relative path, which would litter wherever
    # the notebook happens to run.
    return folder if folder.is_absolute() else makeshift_folder()


def makeshift_folder() -> Path:
    """Where data sets are kept for somebody without a home folder."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    try:
        return Path(tempfile.gettempdir()) / f"labkit-{user}"
    except OSError:  # not one writable folder: what cannot be kept here is kept in memory
        return Path(os.sep) / f"labkit-{user}"


def _absolute(path: str) -> Path:
    with suppress(RuntimeError):  # a "~" that no home folder stands behind
        return Path(path).expanduser().absolute()
    return Path(path).absolute()


def chosen_folder(folder: str | os.PathLike[str] | None) -> Path:
    """The folder that a student named, or the cache folder."""
    if folder is None:
        return cache_folder()
    try:
        path = _absolute(os.fspath(folder))
        is_file = path.exists() and not path.is_dir()
        if "\0" in str(path):
            raise ValueError("no file system has such a name")
    except (TypeError, ValueError, OSError) as fault:
        raise LabError(
            f"folder={folder!r} is not a folder. Give a path such as 'data', or leave it out."
        ) from fault
    if is_file:
        raise LabError(
            f"folder={os.fspath(folder)!r} is a file. "
            "Give the folder that holds it, or leave it out."
        )
    return path


def reason(fault: OSError) -> str:
    """An operating system's refusal in plain words.

    >>> reason(OSError(28, "No space left on device"))
    'the disk is full'
    """
    return _WHY.get(fault.errno or 0, fault.strerror or type(fault).__name__)


def keep(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file so that every reader sees the old one or the whole new one.

    Whatever goes wrong, the old file stays as it was and nothing half-written remains.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(PART, f".{path.name}-", path.parent)
    part = Path(name)
    try:
        # Closing may be what reports a full disk, so it must lie inside this try.
        with os.fdopen(descriptor, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp lets nobody else read; a cache that a course shares must be readable.
        part.chmod(0o644)
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise


def sweep(folder: Path) -> None:
    """Remove what killed writers have left behind."""
    with suppress(OSError):
        for part in folder.glob(f".*{PART}"):
            with suppress(OSError):
                if time.time() - part.stat().st_mtime > STALE_S:
                    part.unlink()


@contextmanager
def alone(folder: Path, name: str, wait_s: float) -> Iterator[bool]:
    """Hold the right to prepare `name`, so that a class that starts at once prepares it once.

    The right ends with the process that holds it, even if that is killed. It only saves work:
    after `wait_s`, or where locks do not work, the caller goes on without it (False).
    """
    lock = _lock_file(folder / f".{name}.lock")
    try:
        yield lock is not None and _locked(lock, name, wait_s)
    finally:
        if lock is not None:
            os.close(lock)


def _lock_file(path: Path) -> int | None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError:
        return None


def _locked(lock: int, name: str, wait_s: float) -> bool:
    try:
        import fcntl
    except ImportError:
        return False
    began = time.monotonic()
    with progress(f"waiting for another process that prepares {name}") as advance:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                if time.monotonic() - began >= wait_s:
                    return False
            except OSError:
                return False
            advance(0)
            time.sleep(0.05)


def remember_failure(folder: Path, name: str) -> None:
    """Note that a download failed just now, so that the next calls do not wait for it again."""
    with suppress(OSError):
        text = json.dumps({"failed_at": time.time()})
        keep(folder / f"{name}.no-download", lambda file: file.write(text.encode()))


def failed_lately(folder: Path, name: str) -> bool:
    """Whether a download failed within the last hour."""
    try:
        with (folder / f"{name}.no-download").open("rb") as file:
            failed_at = float(json.loads(file.read(1000))["failed_at"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
    # A time in the future comes from a clock that was wrong; it must not forbid for ever.
    return 0 <= time.time() - failed_at < AGAIN_S
