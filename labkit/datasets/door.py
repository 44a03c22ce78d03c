"""The one way in: the cache, then the internet, then our own drawing; and it says which.

No trouble with a disk or a network ends a lesson. What could not be done stands in the notes.
"""

from __future__ import annotations

import io
import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal

from labkit.datasets import archives, cache
from labkit.datasets.archives import Arrays, DamagedError
from labkit.datasets.dataset import Dataset
from labkit.datasets.download import NotFetchedError, fetch
from labkit.progress import progress

if TYPE_CHECKING:
    from labkit.datasets.sources import Source

__all__ = ["at_hand", "enter", "offline"]

_known: dict[tuple[str, str], Dataset] = {}
_failed: dict[tuple[str, str], float] = {}
_busy = threading.Lock()

_DIFFERS = (
    "This machine's NumPy drew a stand-in that differs from the reference one: "
    "accuracies may differ a little from those of other machines."
)


def enter(source: Source, folder: Path) -> Dataset:
    """The data set, from wherever it can be had. The second call in a process is instant.

    Only a stand-in is not for ever: once a download is allowed, the next call tries it.
    """
    key = (source.key, str(folder))
    if _settled(key, source, folder):
        return _known[key]
    # With a deadline, because a fork may have copied a lock that nobody will release.
    held = _busy.acquire(timeout=cache.WAIT_S)
    try:
        if not _settled(key, source, folder):
            _known[key] = _prepare(source, folder)
        return _known[key]
    finally:
        if held:
            _busy.release()


def _settled(key: tuple[str, str], source: Source, folder: Path) -> bool:
    known = _known.get(key)
    return known is not None and (known.origin != "stand-in" or not _may_download(source, folder))


def at_hand(source: Source, folder: Path) -> Literal["real", "stand-in", "none"]:
    """What the cache holds, without downloading, drawing or unpacking anything."""
    for path in _places(source, folder):
        with suppress(OSError), path.open("rb") as file:
            if _is_published(file, source):
                return "real"
    with suppress(OSError, DamagedError), (folder / source.stand_in).open("rb") as file:
        archives.look_into(file, source)
        return "stand-in"
    return "none"


def _prepare(source: Source, folder: Path) -> Dataset:
    notes: list[str] = []
    if folder == cache.makeshift_folder():
        notes.append(
            "There is no home folder, so data are kept in this machine's temporary folder. "
            "Set LABKIT_CACHE to a folder of yours to keep them."
        )
    cache.sweep(folder)
    arrays = _from_cache(source, folder, notes)
    if arrays is not None:
        return _dataset(source, "cache", arrays, notes)
    if not _may_download(source, folder):
        about: list[str] = []
        arrays = _kept_stand_in(source, folder, about)
        if arrays is not None:
            _say_why_no_download(source, notes)
            return _dataset(source, "stand-in", arrays, [*notes, *about])
    with cache.alone(folder, source.key, cache.WAIT_S):
        # Another process may have done the work while this one waited.
        arrays = _from_cache(source, folder, [])
        if arrays is not None:
            return _dataset(source, "cache", arrays, [])
        if _may_download(source, folder):
            arrays = _download(source, folder, notes)
            if arrays is not None:
                return _dataset(source, "download", arrays, notes)
        else:
            _say_why_no_download(source, notes)
        arrays = _kept_stand_in(source, folder, notes) or _draw(source, folder, notes)
    return _dataset(source, "stand-in", arrays, notes)


def _dataset(
    source: Source,
    origin: Literal["cache", "download", "stand-in"],
    arrays: Arrays,
    notes: list[str],
) -> Dataset:
    return Dataset(source.name, origin, *arrays, classes=source.classes, notes=tuple(notes))


def _places(source: Source, folder: Path) -> list[Path]:
    """Where the published file may lie: our cache, and Keras' own, which is only ever read."""
    places = [folder / source.file]
    if source.key == "mnist":
        with suppress(RuntimeError):  # nobody's home
            keras = os.environ.get("KERAS_HOME") or Path.home() / ".keras"
            places.append(Path(keras) / "datasets" / source.file)
    return places


def _is_published(file: BinaryIO, source: Source) -> bool:
    # The size first: it costs nothing, and most wrong files differ in it.
    right_size = os.fstat(file.fileno()).st_size == source.size
    return right_size and archives.whole_sha256(file) == source.sha256


def _from_cache(source: Source, folder: Path, notes: list[str]) -> Arrays | None:
    for path in _places(source, folder):
        whose = "labkit's cache" if path.parent == folder else "Keras' cache"
        try:
            with path.open("rb") as file:
                if _is_published(file, source):
                    # The same open file is read, so nobody can exchange it after the check.
                    return source.read(file, source)
                notes.append(
                    f"{path.name} in {whose} is not used: it is damaged, "
                    "its checksum is not that of the published file."
                )
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as fault:
            notes.append(f"{path.name} in {whose} cannot be read ({fault.strerror}).")
        except DamagedError as fault:
            notes.append(f"{path.name} in {whose} is not used: {fault}.")
    return None


def offline() -> bool:
    """Whether LABKIT_OFFLINE forbids downloads."""
    return os.environ.get("LABKIT_OFFLINE", "").strip().lower() not in ("", "0", "no", "false")


def _shut_in() -> bool:
    """Whether this is a rank in a network of its own, which is no fault of the internet."""
    return os.environ.get("LABKIT_NETWORK") == "own"


def _failed_lately(source: Source, folder: Path) -> bool:
    at = _failed.get((source.key, source.url))
    in_process = at is not None and time.monotonic() - at < cache.AGAIN_S
    return in_process or cache.failed_lately(folder, source.key)


def _may_download(source: Source, folder: Path) -> bool:
    return not (offline() or _shut_in() or _failed_lately(source, folder))


def _say_why_no_download(source: Source, notes: list[str]) -> None:
    if offline():
        notes.append(
            "LABKIT_OFFLINE is set, so nothing was downloaded. Unset it to get the published files."
        )
    elif _shut_in():
        notes.append(
            "This rank has a network of its own, without a way out, so nothing was downloaded. "
            f"Get {source.name} in the notebook first, and the ranks find it in the cache; or open "
            "the block with labkit.cluster(..., network='shared')."
        )
    else:
        notes.append(
            "A download failed less than an hour ago and was not tried again. To try now, delete "
            f"{source.key}.no-download in labkit.datasets.cache_folder() and restart the kernel."
        )


def _download(source: Source, folder: Path, notes: list[str]) -> Arrays | None:
    path = folder / source.file
    try:
        with progress(f"downloading {source.name}", source.size) as advance:

            def fill(sink: BinaryIO) -> None:
                fetch(source.url, source.sha256, source.size, sink, source.deadlines, advance)

            try:
                cache.keep(path, fill)
                with path.open("rb") as file:
                    return source.read(file, source)
            except OSError as fault:
                notes.append(_not_kept(path.name, fault))
            # Not in the cache, then; the download must still serve this kernel.
            memory = io.BytesIO()
            fill(memory)
            memory.seek(0)
            return source.read(memory, source)
    except (NotFetchedError, DamagedError) as fault:
        _failed[source.key, source.url] = time.monotonic()
        cache.remember_failure(folder, source.key)
        notes.append(
            f"{source.name} could not be downloaded: {fault}. It is tried again in an hour."
        )
    return None


def _kept_stand_in(source: Source, folder: Path, notes: list[str]) -> Arrays | None:
    path = folder / source.stand_in
    try:
        with path.open("rb") as file:
            arrays = archives.read_stand_in(file, source)
            if not archives.look_into(file, source):
                notes.append(_DIFFERS)
            return arrays
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as fault:
        notes.append(f"{path.name} in labkit's cache cannot be read ({fault.strerror}).")
    except DamagedError as fault:
        notes.append(f"{path.name} in labkit's cache was not used and drawn again: {fault}.")
    return None


def _draw(source: Source, folder: Path, notes: list[str]) -> Arrays:
    with progress(f"drawing a stand-in for {source.name}", source.train + source.test) as advance:
        train = source.draw(source.train, 0, advance)
        test = source.draw(source.test, 1, lambda done: advance(source.train + done))
    arrays = Arrays(*train, *test)
    for array in arrays:
        array.setflags(write=False)
    if source.drawn_sha256 and archives.content_sha256(arrays) != source.drawn_sha256:
        notes.append(_DIFFERS)
    path = folder / source.stand_in
    try:
        with progress(f"keeping the stand-in for {source.name}", len(arrays) + 1) as advance:
            reference = source.drawn_sha256
            cache.keep(path, lambda file: archives.write_stand_in(file, arrays, advance, reference))
    except OSError as fault:
        notes.append(_not_kept(path.name, fault))
    return arrays


def _not_kept(name: str, fault: OSError) -> str:
    return (
        f"{name} could not be kept in the cache ({cache.reason(fault)}); these data are in memory "
        "only. Set LABKIT_CACHE to a folder with space that you may write to."
    )
