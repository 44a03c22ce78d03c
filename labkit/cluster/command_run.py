"""A run whose ranks one command starts (mpiexec, srun): the command, and the folder they talk in.

>>> run = CommandRun("mpiexec", lambda code, said: f"mpiexec said: {said}")    # doctest: +SKIP
>>> run.start(starter, folder, ["mpiexec", "-n", "2"], mpi_environment(), task)  # doctest: +SKIP
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from labkit.cluster.engine import Event
from labkit.cluster.folder import RunFolder
from labkit.cluster.folder_run import FolderRun
from labkit.cluster.remote import Task
from labkit.cluster.starter import Command, Starter, with_labkit
from labkit.cluster.watcher import FINISH

__all__ = ["CommandRun"]

SAID = 600  # characters of what the command said, in a sentence


class CommandRun:
    """The run that goes now, if one does: an engine has one of these for all of its runs.

    `why` makes a sentence of the code with which the command ended and of what it said.
    """

    def __init__(self, name: str, why: Callable[[int, str], str]) -> None:
        self._name, self._why = name, why
        self._run: FolderRun | None = None
        self._command: Command | None = None

    def start(
        self,
        starter: Starter,
        within: Path,
        command: Sequence[str],
        environment: Mapping[str, str],
        task: Task,
    ) -> None:
        """Write the task down in a new folder, and have the command start the ranks."""
        folder = RunFolder.new(within)
        self._run = FolderRun(folder, task.ranks)
        self._run.describe(task)
        words = [*command, sys.executable, "-m", "labkit.cluster.remote", str(folder.path)]
        whole = {**with_labkit(environment), **folder.environment()}
        self._command = starter.start(words, whole, folder.path / self._name)

    def events(self, timeout: float) -> list[Event]:
        """What the ranks have written; and that the command has ended, and they with it."""
        if self._run is None or self._command is None:
            return []
        code = self._command.code()
        events = self._run.wait(timeout, command_ended=() if code is None else (code,))
        if code is not None and not self._run.is_over:
            events += self._run.give_up(code or 1, self._why(code, self._command.said()[-SAID:]))
        return events

    def request(self, what: str, ranks: Collection[int]) -> None:
        """Ask the watchers of these ranks for something; nothing when no run goes."""
        if self._run is not None:
            self._run.request(what, ranks)

    def stop(self, patience: float, end: Callable[[Command, set[str]], None]) -> None:
        """Have the watchers end their ranks; then `end` the command, given the ranks' steps too.

        `patience`: seconds for the watchers, beyond those in which ranks take their leave.
        """
        run, command = self._run, self._command
        if run is None or command is None:
            return
        try:
            run.end(FINISH + patience, lambda: command.code() is not None)
        finally:
            try:
                end(command, run.steps - {""})
            finally:
                run.folder.remove()
                self._run = self._command = None
