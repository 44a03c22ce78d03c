"""Commands that take work elsewhere (mpiexec, srun), by a launcher so that none outlives us.

>>> starter = Starter(folder)                                           # doctest: +SKIP
>>> starter.start(["mpiexec", "-n", "2", "date"], os.environ, folder / "log").wait(5)
True
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from labkit.cluster.launching import Launcher
from labkit.kinds import LabError

__all__ = ["Command", "Starter"]

LOOK = 0.01
GONE = 5.0  # seconds for what was killed to be gone


class Starter:
    """A launcher, and a count in `folder` that stands still when nobody is left to start anything.

    With `network="own"` commands are in a network of their own; `refused` says why they are not.
    """

    def __init__(self, folder: Path, *, network: str = "shared", deadline: float = 30.0) -> None:
        self._launcher = Launcher(network=network, deadline=deadline)
        self.refused = self._launcher.refused
        self._codes: dict[int, int] = {}
        self._pids: dict[int, int] = {}
        self._number = 0
        count = [sys.executable, "-m", "labkit.cluster.alive", str(folder)]
        self.start(count, with_labkit(os.environ), folder / "alive.log")

    def start(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> Command:
        """Start a command in a session of its own; what it says itself goes to the log."""
        self._number += 1
        with log.open("ab") as said:
            out = said.fileno()
            self._launcher.spawn(self._number, command, environment, os.curdir, out, out)
        return Command(self, self._number, log)

    def at_end(self, *commands: Sequence[str]) -> None:
        """What to run when this process is gone without `close`."""
        self._launcher.at_end(*commands)

    def code(self, number: int) -> int | None:
        """How a command ended; None while it runs."""
        for message in self._launcher.receive():
            if message[0] == "gone":
                self._codes[message[1]] = message[2]
            elif message[0] == "spawned":
                self._pids[message[1]] = message[2]
            elif message[0] == "refused":
                raise LabError(f"A command cannot be started: {message[2]}.")
        if not self._launcher.alive:
            return self._codes.setdefault(number, -signal.SIGKILL)  # all go with the launcher
        return self._codes.get(number)

    def pid(self, number: int) -> int | None:
        """The process of a command; None while nobody has said it."""
        self.code(number)
        return self._pids.get(number)

    def send(self, number: int, signal_number: int) -> None:
        """Signal a command and its group."""
        if self._launcher.alive:
            self._launcher.signal_command(number, signal_number)

    def close(self) -> None:
        """End all commands, and the launcher."""
        self._launcher.close()


class Command:
    """A command that was started."""

    def __init__(self, starter: Starter, number: int, log: Path) -> None:
        self._starter, self._number, self._log = starter, number, log

    def code(self) -> int | None:
        """How it ended, as subprocess says it; None while it runs."""
        return self._starter.code(self._number)

    @property
    def pid(self) -> int | None:
        """Its process, also when it is gone; None when it never was."""
        return self._starter.pid(self._number)

    def wait(self, seconds: float) -> bool:
        """Whether it has ended by then."""
        until = time.monotonic() + seconds
        while self.code() is None:
            if time.monotonic() > until:
                return False
            time.sleep(LOOK)
        return True

    def said(self) -> str:
        """The end of what it wrote itself."""
        try:
            return self._log.read_text(encoding="utf-8", errors="replace")[-2000:].strip()
        except OSError:
            return ""

    def end(self, asked: float = 1.0) -> None:
        """Ask it to end, and its group; then kill them."""
        for number, patience in ((signal.SIGTERM, asked), (signal.SIGKILL, GONE)):
            if self.code() is None:
                self._starter.send(self._number, number)
                self.wait(patience)


def with_labkit(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment in which `python -m labkit...` is this labkit."""
    home = str(Path(__file__).parents[2])
    paths = [home, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    return {**environment, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}
