"""The outer process of a rank: it obeys requests, says how the rank ended, and ends with it.

Nothing that a program does to its own process keeps this one from answering.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from contextlib import suppress
from pathlib import Path

from labkit.cluster.alive import Watch
from labkit.cluster.folder import RunFolder

__all__ = ["FINISH", "IN_PEACE", "LOOK", "Watcher", "log_of"]

LOOK = 0.02  # seconds between two looks into the folder
FINISH = 2.0  # seconds that a rank which has returned may take to take its leave from the others
LATE = 30.0  # seconds after the deadline: then whoever asked has forgotten this run
IN_PEACE = b"all have returned"
SIGNALS = {"kill": signal.SIGKILL, "pause": signal.SIGSTOP, "resume": signal.SIGCONT}


class Watcher:
    """The outer process: one loop, nothing that could hang."""

    def __init__(self, folder: RunFolder, rank: int, pid: int, deadline: float) -> None:
        self._folder, self._rank, self._pid = folder, rank, pid
        self._asker = Watch(folder.path.parent)
        self._until = time.monotonic() + deadline + LATE
        self._began = False
        self._deadline = deadline
        self._ended: int | None = None
        self._asked_to_end = self._has_said = False
        self._answered = 0
        self._files = [log_of(folder.path, name, rank) for name in ("out", "err", "stack")]
        self._sizes = [0] * len(self._files)

    def watch(self) -> int:
        """Until the run is over; 0 when somebody was there to say so."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        good = False
        try:
            with suppress(FileNotFoundError):  # the folder went between two looks: all is over
                good = self._until_over()
        finally:
            self._end_all()
        return 0 if good else 1

    def _until_over(self) -> bool:
        while True:
            names = self._names()
            if names is None or self._asker.is_over() or time.monotonic() > self._until:
                return False
            if "go" in names and not self._began:
                self._began = True
                self._until = time.monotonic() + self._deadline + LATE
            self._obey(names)
            self._publish()
            if self._asked_to_end:
                self._kill(signal.SIGKILL)
                self._wait(5.0)
                return False
            if self._ended is None and self._reap():
                self._publish()
                self._say_ended(self._ended or 0)
            if "over" in names:
                in_peace = self._folder.read("over") == IN_PEACE
                self._wait(FINISH if in_peace else 0.0)
                return True  # how it ended is told: the launcher need not act on it
            time.sleep(LOOK)

    def _names(self) -> set[str] | None:
        try:
            return self._folder.names()
        except OSError:
            return None  # removed: whoever asked is done

    def _obey(self, names: set[str]) -> None:
        while f"request{self._answered}" in names:
            what, ranks = json.loads(self._folder.read(f"request{self._answered}"))
            self._answered += 1
            if self._rank not in ranks or self._ended is not None:
                continue
            if what == "stacks" and f"ready{self._rank}" in names:
                if _is_stopped(self._pid):
                    self._folder.write(f"stopped{self._rank}")
                else:
                    self._kill(signal.SIGUSR1)
            elif what in SIGNALS:
                self._kill(SIGNALS[what])

    def _publish(self) -> None:
        """What the rank has written, also for readers on other machines."""
        for n, file in enumerate(self._files):
            size = os.fstat(file).st_size
            if size != self._sizes[n]:
                self._sizes[n] = size
                with suppress(OSError):
                    os.fsync(file)

    def _say_ended(self, code: int) -> None:
        if not self._has_said:
            self._has_said = True
            with suppress(OSError):
                code = -signal.SIGTERM if self._asked_to_end else code
                self._folder.write(f"ended{self._rank}", json.dumps(code).encode())

    def _kill(self, number: int) -> None:
        # Until it is waited for, the number stays its own.
        if self._ended is None:
            os.kill(self._pid, number)

    def _reap(self) -> bool:
        if self._ended is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self._ended = os.waitstatus_to_exitcode(status)
        return self._ended is not None

    def _wait(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while not self._reap() and time.monotonic() < until:
            time.sleep(LOOK / 2)
        return self._ended is not None

    def _on_signal(self, *_: object) -> None:
        self._asked_to_end = True

    def _end_all(self) -> None:
        """The rank, and whatever it has started: orphans of ours become our children."""
        shared = _shared_memory(self._pid) if self._ended is None else []
        self._kill(signal.SIGKILL)
        self._wait(5.0)
        until = time.monotonic() + 5.0
        while (children := _children()) and time.monotonic() < until:
            for child in children:
                os.kill(child, signal.SIGKILL)
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            time.sleep(LOOK / 2)
        for path in shared:
            path.unlink(missing_ok=True)
        self._say_ended(0 if self._ended is None else self._ended)


def log_of(folder: Path, name: str, rank: int) -> int:
    """A file of the folder, open to be written at its end."""
    return os.open(folder / f"{name}{rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def _is_stopped(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return state.rpartition(")")[2].split()[0] in ("T", "t")


def _children() -> list[int]:
    mine = Path(f"/proc/self/task/{os.getpid()}/children")
    try:
        return [int(word) for word in mine.read_text(encoding="ascii").split()]
    except OSError:
        return []


def _shared_memory(pid: int) -> list[Path]:
    """Files that MPI shares between ranks. Ranks that are killed leave them in memory for ever."""
    try:
        maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    found = re.findall(r"/dev/shm/mpich_shm_\w+", maps)  # noqa: S108 (MPICH's name)
    return [Path(name) for name in sorted(set(found))]
