"""Whether the one who asked is still there: a file that changes, and a clock of one's own.

A number is counted up in the file `alive` by a process beside the asker; who depends on the asker
ends when the number has stood still too long. No clocks of two machines are compared.

python -m labkit.cluster.alive FOLDER       counts, until the folder or its starter is gone
"""

from __future__ import annotations

import os
import select
import sys
import time
from pathlib import Path

__all__ = ["Watch", "main"]

BEAT = 2.0  # seconds between two counts
PATIENCE = 60.0  # seconds without one: longer than a network file system may hide a change


class Watch:
    """Looks at a folder's count, seldom enough to cost nothing."""

    def __init__(self, folder: Path, patience: float = PATIENCE) -> None:
        self._file, self._patience = folder / "alive", patience
        self._count, self._changed = "", time.monotonic()
        self._next = 0.0

    def is_over(self) -> bool:
        """Whether the count has stood still for longer than patience has."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + min(BEAT, self._patience / 4)
            count = self._read()
            if count is None and not self._file.parent.is_dir():
                return True  # the folder is removed at the very end
            if count and count != self._count:
                self._count, self._changed = count, now
        return now - self._changed > self._patience

    def _read(self) -> str | None:
        try:
            return self._file.read_text()
        except OSError:
            return None


def count(folder: Path, number: int) -> None:
    """Write the number, at once as a whole."""
    half = folder / ".alive"
    half.write_text(f"{number}\n")
    half.rename(folder / "alive")


def main() -> None:
    """Count until the folder is gone, or whoever started this."""
    folder, number, parent = Path(sys.argv[1]), 0, os.getppid()
    while folder.is_dir() and os.getppid() == parent:
        number += 1
        try:
            count(folder, number)
        except OSError:
            return
        select.select([], [], [], BEAT)


if __name__ == "__main__":
    main()
