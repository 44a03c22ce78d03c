"""What a launcher has started, ranks and commands: each leads a group, and is ended with it.

Only the launcher signals them: it is their parent, and a pid is not given away before its parent
has let go of it.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress

from labkit.cluster.children import children, state_of
from labkit.cluster.spares import Spares

__all__ = ["Processes"]

ENDING = 5.0  # seconds for what was killed to be gone


class Processes:
    """Ranks, by run and number, and commands, by number; spare ranks are let live.

    `say` is told ("ended", run, rank, code) and ("gone", command, code), each once.
    """

    def __init__(self, spares: Spares, say: Callable[..., None]) -> None:
        self._spares, self._say = spares, say
        self._ranks: dict[int, tuple[int, int]] = {}
        self._commands: dict[int, int] = {}

    @property
    def has_ranks(self) -> bool:
        """Whether there is a rank that has not been waited for."""
        return bool(self._ranks)

    def add_rank(self, pid: int, run: int, rank: int) -> None:
        """A rank that was forked."""
        self._ranks[pid] = run, rank

    def add_command(self, pid: int, number: int) -> None:
        """A command that was started as the leader of a session."""
        self._commands[pid] = number

    def signal_rank(self, run: int, rank: int, number: int) -> None:
        """Signal a rank and all of its group."""
        for pid, known in self._ranks.items():
            if known == (run, rank):
                _signal(pid, number)

    def signal_command(self, command: int, number: int) -> None:
        """Signal a command and all of its group."""
        for pid, known in self._commands.items():
            if known == command:
                _signal(pid, number)

    def ask_where(self, run: int, rank: int) -> bool:
        """Ask a rank where it is. False: it cannot answer, because it is stopped."""
        for pid, known in self._ranks.items():
            if known == (run, rank):
                if state_of(pid) in "Tt":
                    return False
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGUSR1)
        return True

    def reap(self) -> bool:
        """Say who has ended, and leave no zombie. False: there are no children at all."""
        while True:
            try:
                ended = self._ended()
            except ChildProcessError:
                return False
            if ended is None:
                return True
            pid, code = ended
            if pid in self._ranks:
                self._say("ended", *self._ranks.pop(pid), code)
            elif pid in self._spares:
                self._spares.forget(pid)
            elif pid in self._commands:
                self._say("gone", self._commands.pop(pid), code)

    def end_all(self) -> bool:
        """Kill ranks, commands, and what they have left to us, until there is nothing."""
        until = time.monotonic() + ENDING
        while time.monotonic() < until:
            for pid in (*self._ranks, *self._commands):
                _signal(pid, signal.SIGKILL)
            left = [pid for pid in children() if pid not in self._spares]
            for pid in left:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            nothing_else = not (left or self._ranks or self._commands)
            if not self.reap() or (self._spares and nothing_else):
                return True
            time.sleep(0.002)
        return False

    def _ended(self) -> tuple[int, int] | None:
        """A child that has ended, and its exit code."""
        if hasattr(os, "waitid"):
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is None:
                return None
            if found.si_pid in self._ranks or found.si_pid in self._commands:
                # While its leader is not reaped, the group cannot be another's.
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(found.si_pid, signal.SIGKILL)
        pid, status = os.waitpid(-1, os.WNOHANG)  # alone, on macOS before Python 3.13
        return (pid, os.waitstatus_to_exitcode(status)) if pid else None


def _signal(pid: int, number: int) -> None:
    """To the process and its group, which one that was forked just now has not made yet."""
    with suppress(PermissionError):
        try:
            os.killpg(pid, number)
        except ProcessLookupError:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
