"""A program that waits until it is let go, and gets the signals that are meant for it.

>>> with held(["python", "train.py"], "/usr/bin/python", environment) as program:  # doctest: +SKIP
...     program.go()
...     code = program.wait()
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

from labkit.kinds import LabError

__all__ = ["Program", "held"]

# A terminal sends these to the program as well; the others reach us alone.
_SENT_TO_BOTH = (signal.SIGINT, signal.SIGQUIT)
_SIGNALS = (*_SENT_TO_BOTH, signal.SIGTERM, signal.SIGHUP)
_PYTHONS_OWN = (signal.SIGPIPE, signal.SIGXFSZ)  # Python ignores them; programs do not expect that
_CANNOT_RUN = 126  # what a shell says


class Program:
    """A fork of this process. It becomes the program at the word, and ends if that never comes.

    Not a shell that waits for a word: the numbers of its open files have one digit, and whoever
    called us may use all of these. The program has every file open that it would have without us.
    """

    def __init__(
        self, command: list[str], path: str, environment: Mapping[str, str], mask: set[int]
    ) -> None:
        waiting, self._go = os.pipe()
        self._code: int | None = None
        try:
            self.pid = os.fork()
        except OSError as fault:
            os.close(waiting)
            os.close(self._go)
            raise LabError(
                f"{command[0]} cannot be started: {fault.strerror}. "
                "End programs that you do not need, and try again."
            ) from fault
        if self.pid == 0:
            _become(command, path, environment, mask, waiting, self._go)
        os.close(waiting)

    def go(self) -> None:
        """Begin."""
        with suppress(BrokenPipeError):  # somebody has ended it meanwhile
            os.write(self._go, b"g")
        self._let_go()

    def wait(self) -> int:
        """How it has ended: its exit code, or less than zero the signal that has ended it."""
        self._let_go()
        if self._code is None:
            _, status = os.waitpid(self.pid, 0)
            self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def send(self, number: int) -> None:
        """Pass a signal on, while there is somebody to get it."""
        if self._code is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def _let_go(self) -> None:
        if self._go >= 0:
            os.close(self._go)
            self._go = -1


@contextmanager
def held(command: list[str], path: str, environment: Mapping[str, str]) -> Iterator[Program]:
    """The program, waiting. Inside, Ctrl-C is its own matter, and requests to end are passed on.

    A signal that is ignored here (`nohup`, a job in the background) stays ignored, for both.
    """

    def pass_on(number: int, _frame: FrameType | None) -> None:
        if number not in _SENT_TO_BOTH:
            program.send(number)

    # Until it is clear who does what with a signal, in both processes, none comes.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        program = Program(command, path, environment, {int(one) for one in mask})
        before = {one: signal.signal(one, pass_on) for one in _heeded()}
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        yield program
    finally:
        program.wait()
        for number, handler in before.items():
            signal.signal(number, handler)


def _heeded() -> list[signal.Signals]:
    return [one for one in _SIGNALS if signal.getsignal(one) is not signal.SIG_IGN]


def _become(
    command: list[str],
    path: str,
    environment: Mapping[str, str],
    mask: set[int],
    waiting: int,
    go: int,
) -> NoReturn:
    """In the fork: wait for the word, then be the program."""
    try:
        os.close(go)
        for number in (*_heeded(), *_PYTHONS_OWN):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if os.read(waiting, 1):
            _execute(command, path, environment)
    except OSError as fault:
        says = f"labkit record: {command[0]} cannot be run: {fault.strerror}.\n"
        with suppress(OSError):
            os.write(2, says.encode(errors="replace"))
    finally:
        os._exit(_CANNOT_RUN)


def _execute(command: list[str], path: str, environment: Mapping[str, str]) -> None:
    try:
        os.execve(path, command, environment)
    except OSError as fault:
        if fault.errno != errno.ENOEXEC:
            raise
        # A script whose first line names no interpreter is the shell's, in every shell.
        os.execve("/bin/sh", ["sh", path, *command[1:]], environment)
