"""The page cache: which share of a file is in memory, and how to begin without it."""

import ctypes
import mmap
import os
from io import FileIO
from pathlib import Path

from labkit.kinds import LabError


def cached(path: str | Path) -> float:
    """Return the share of a file's pages that are in memory, from 0 to 1 (mincore of Linux).

    After `evict`, that is what has been read since, with all that the kernel read ahead: also by
    programs that open the path by themselves or map it.
    """
    with _opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size == 0:
            return 1.0
        # Private and writable, because ctypes takes no address of read-only memory.
        with mmap.mmap(file.fileno(), size, mmap.MAP_PRIVATE) as mapped:
            pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
            first = ctypes.c_char.from_buffer(mapped)
            library = ctypes.CDLL(None, use_errno=True)
            address = ctypes.c_void_p(ctypes.addressof(first))
            failed = library.mincore(address, ctypes.c_size_t(size), pages)
            del first, address  # else the map cannot be closed
        if failed:
            raise LabError(f"The pages of {path} cannot be counted: mincore failed here.")
        return sum(page & 1 for page in pages) / len(pages)


def evict(path: str | Path) -> float:
    """Drop a file from the page cache; return the share that is still there.

    0 means that the next read is cold. On tmpfs, such as /dev/shm, it has no effect, because the
    pages are the file itself; nor on pages that a program has mapped and touched.
    """
    with _opened(path) as file:
        os.fsync(file.fileno())  # pages that are not written yet would stay
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return cached(path)


def _opened(path: str | Path) -> FileIO:
    if not hasattr(os, "posix_fadvise"):
        raise LabError("Only Linux tells which pages are cached. Measure with a warm cache here.")
    try:
        return Path(path).open("rb", buffering=0)
    except OSError as fault:
        raise LabError(f"{path} cannot be read: {fault.strerror}.") from None
