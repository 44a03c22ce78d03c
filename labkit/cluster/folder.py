"""The folder in which whoever asks for a run and its ranks talk, wherever the ranks are.

Only its owner may enter it. A message is a file that appears whole, signed with a key of the run:
the ranks are given the key in their environment, so that nobody else can tell them what to do.

>>> folder = RunFolder.new(Path("/tmp"))                # doctest: +SKIP
>>> folder.write("go", b"")                             # doctest: +SKIP
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from labkit.kinds import LabError

__all__ = ["KEY", "RunFolder"]

KEY = "LABKIT_RUN_KEY"
SIGNATURE = hashlib.sha256().digest_size


@dataclass(frozen=True)
class RunFolder:
    """Signed messages, by name, in a folder that its owner alone may enter."""

    path: Path
    key: bytes = field(repr=False)

    @classmethod
    def new(cls, within: Path) -> RunFolder:
        """A folder of this run, with a key that nobody knows yet."""
        return cls(Path(tempfile.mkdtemp(prefix="run-", dir=within)), secrets.token_bytes(32))

    @classmethod
    def of_this_rank(cls, path: str) -> RunFolder:
        """The folder with the key from the environment, which then no longer holds it."""
        key = os.environ.pop(KEY, "")
        if not key:
            raise LabError(
                f"{KEY} is not set: ranks are started by labkit.cluster, not by hand. "
                "Use labkit slurm run FILE.py:NAME in scripts of your own."
            )
        folder = Path(path)
        state = folder.stat()
        if state.st_uid != os.getuid() or state.st_mode & 0o077:
            raise LabError(f"{folder} can be entered by others than you: nothing is read from it.")
        return cls(folder, bytes.fromhex(key))

    def environment(self) -> dict[str, str]:
        """What a rank needs to read and write here."""
        return {KEY: self.key.hex()}

    def write(self, name: str, content: bytes = b"") -> None:
        """All at once: who sees the file sees all of it."""
        half = self.path / f".{name}.{os.getpid()}"
        with half.open("wb") as file:
            file.write(self._signature(name, content) + content)
            file.flush()
            os.fsync(file.fileno())
        half.rename(self.path / name)

    def read(self, name: str) -> bytes:
        """What was written under this name; a LabError when somebody else wrote it."""
        data = (self.path / name).read_bytes()
        signature, content = data[:SIGNATURE], data[SIGNATURE:]
        if not hmac.compare_digest(signature, self._signature(name, content)):
            raise LabError(
                f"{self.path / name} was not written by this run: nothing is used of it."
            )
        return content

    def names(self) -> set[str]:
        """The messages that are there.

        Listed, and not asked for one by one: a network file system remembers for half a minute that
        a name was not there, but looks anew when a folder is opened.
        """
        return set(os.listdir(self.path))  # noqa: PTH208 (names are what is wanted)

    def remove(self) -> None:
        """The folder and all in it; who still looks into it finds it gone at once."""
        gone = self.path.with_name(f".{self.path.name}.gone")
        with suppress(OSError):
            self.path.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    def _signature(self, name: str, content: bytes) -> bytes:
        # The name too: a result must not pass for a request.
        told = name.encode() + b"\0" + content
        return hmac.new(self.key, told, hashlib.sha256).digest()
