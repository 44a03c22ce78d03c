"""A recording that is written while it happens, so that a crash costs at most its last line."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

from labkit.kinds import LabError
from labkit.telemetry.lines import Header, end_line, header_line

__all__ = ["RecordFile", "claim"]


class RecordFile:
    """One file, opened for adding; each line goes to the system whole and at once.

    A file that cannot be written to any more (a full disk) ends the recording, not the lesson:
    `fault` then says why.
    """

    def __init__(self, path: Path, header: Header) -> None:
        self.fault: str | None = None
        self.told = False  # whether the fault was
        self._lock = threading.Lock()
        self._clock = header.clock
        self._file: int | None = claim(path)
        self._write(header_line(header))

    def is_at(self, path: Path) -> bool:
        """Whether that path is this file."""
        if self._file is None:
            return False
        try:
            return os.path.samestat(os.fstat(self._file), path.stat())
        except OSError:
            return False

    def write(self, lines: list[Any]) -> None:
        """Add lines as they arrived; the first and the last are this file's own."""
        for line in lines:
            if type(line) is dict and ("labkit" in line or "end" in line):
                continue
            self._write(json.dumps(line, ensure_ascii=False, separators=(",", ":")))

    def add(self, line: str) -> None:
        """Add one finished line."""
        self._write(line)

    def close(self) -> None:
        """Write the last line, which says that nothing is missing."""
        self._write(end_line(time.monotonic() - self._clock))
        with self._lock:
            if self._file is not None:
                os.close(self._file)
                self._file = None

    def _write(self, line: str) -> None:
        with self._lock:
            if self._file is None:
                return
            data = line.encode() + b"\n"
            try:
                while data:
                    data = data[os.write(self._file, data) :]
            except OSError as fault:
                self.fault = (
                    f"The recording in the file ended early: {fault.strerror}. "
                    "panel.save(path) writes all that was seen to another place."
                )
                os.close(self._file)
                self._file = None


def claim(path: Path) -> int:
    """A new file, open for adding: a recording is never written over another, or over anything."""
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
    except (FileExistsError, IsADirectoryError):
        what = "a folder" if path.is_dir() else "there already"
        raise LabError(
            f"{str(path)!r} is {what}, and a recording never writes over anything. "
            "Choose the name of a new file."
        ) from None
    except (OSError, ValueError) as fault:
        reason = getattr(fault, "strerror", None) or fault
        raise LabError(
            f"{str(path)!r} cannot be written: {reason}. Choose a folder that is yours."
        ) from fault
