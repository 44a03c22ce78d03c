"""A disk with a rate: files whose reads wait as on a slower disk, and are counted.

>>> slow = disk("20 MB/s", latency=0.002)
>>> with slow.open(__file__, buffer=0) as file:
...     head = file.read(3)
>>> head, slow.requests, slow.bytes
(b'\"\"\"', 2, 3)

It works for every user, without a compiler. It covers what reads through such a file object:
Python, numpy.load, tarfile, zipfile, h5py, pyarrow, PIL, torch.load, and tf.data in a
numpy_function or a generator. It does not cover what opens a path by itself, such as
tf.data.TFRecordDataset, or maps a file into memory: see `labkit.storage.cached`.
"""

import io
import multiprocessing
import os
import time
from pathlib import Path
from typing import Any, BinaryIO

from labkit.arguments import bytes_per_second, number, whole
from labkit.kinds import LabError, bytes_text, counted, seconds_text

MOST_LATE = 0.005  # seconds that reads which woke up too late can save later ones


def disk(rate: Any, *, latency: float = 0.0) -> "Disk":
    """Return a disk of a rate such as "20 MB/s"; each request also waits `latency` seconds.

    All files of the disk share its rate, also those that are open in other threads and in
    processes forked from this one, such as the workers of a DataLoader. Latencies overlap.
    """
    return Disk(
        bytes_per_second("rate", rate),
        number("latency", latency, at_least=0, at_most=10),
    )


class Disk:
    """Files that are read at a rate, and the bytes and requests that it has served."""

    def __init__(self, rate: float, latency: float) -> None:
        self.rate, self.latency = rate, latency
        # Until when it is busy, bytes, requests, and by how much waits have been too long: in
        # memory that forked processes share.
        self._state: Any = multiprocessing.get_context("fork").Array("d", 4)

    def open(self, path: str | Path, *, buffer: int = 8192) -> BinaryIO:
        """Open a file for reading. Opening is a request, too.

        A read fetches at least `buffer` bytes, as read-ahead does; 0 fetches what is asked for.
        """
        whole("buffer", buffer, at_most=2**30)
        try:
            raw = _Throttled(self, io.FileIO(path), os.fspath(path))
        except OSError as fault:
            raise LabError(f"{path} cannot be read: {fault.strerror}.") from None
        self.serve(0)
        return io.BufferedReader(raw, buffer) if buffer else raw  # type: ignore[return-value]

    @property
    def bytes(self) -> int:
        """The bytes that it has served."""
        return int(self._state[1])

    @property
    def requests(self) -> int:
        """The files opened and the reads."""
        return int(self._state[2])

    def reset(self) -> None:
        """Count from zero again."""
        with self._state.get_lock():
            self._state[1] = self._state[2] = 0

    def serve(self, size: int) -> None:
        """Wait as long as one request of so many bytes takes."""
        state, lock = self._state, self._state.get_lock()
        with lock:
            now = time.monotonic()
            begin = max(state[0], now - state[3])
            state[3] -= max(0.0, now - begin)
            state[0] = begin + size / self.rate
            state[1] += size
            state[2] += 1
            end = state[0] + self.latency
        time.sleep(max(0.0, end - now))
        with lock:
            state[3] = min(MOST_LATE, state[3] + max(0.0, time.monotonic() - end))

    def __repr__(self) -> str:
        wait = f", {seconds_text(self.latency)} for each request" if self.latency else ""
        served = f"{bytes_text(self.bytes)} served in {counted(self.requests, 'request')}"
        return f"Disk of {bytes_text(self.rate)}/s{wait}: {served}"


class _Throttled(io.RawIOBase):
    """A file of the disk. It has no descriptor, by which numpy would read past the rate."""

    def __init__(self, disk: Disk, file: io.FileIO, name: str) -> None:
        super().__init__()
        self._disk, self._file, self.name = disk, file, name

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = self._file.readinto(buffer)
        self._disk.serve(size)
        return size

    def readall(self) -> bytes:
        rest = os.fstat(self._file.fileno()).st_size - self._file.tell()
        return self.read(rest) or b""

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        self._file.close()
        super().close()
