"""The asker's end of a launcher: start one, talk to it, let it go.

Engines whose work leaves this process have it start their commands, so that a killed kernel leaves
no mpiexec and no job of Slurm behind.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from labkit.cluster.messages import Post
from labkit.kinds import LabError

__all__ = ["Launcher"]

LEAVING = 8.0  # seconds for a launcher to end by itself, having ended all else


class Launcher:
    """A launcher of our own. `network="own"` asks for a private one; `refused` says why it is not.

    >>> launcher = Launcher(network="shared")                                # doctest: +SKIP
    >>> launcher.spawn(1, ["mpiexec", "-n", "2", "date"], os.environ, "/", 1, 2)  # doctest: +SKIP
    """

    def __init__(
        self,
        *,
        network: str = "shared",
        environment: Mapping[str, str] | None = None,
        deadline: float = 30.0,
    ) -> None:
        self.refused = ""
        self._waiting: list[tuple[Any, ...]] = []
        self._pid = os.getpid()
        self._asked = 0
        self._begin(network, environment)
        hello = self._await_hello(deadline)
        if hello:
            self.close()
            self.refused = hello
            self._begin("shared", environment)
            self._await_hello(deadline)

    @property
    def alive(self) -> bool:
        """Whether it can still be asked; a fork of this process may not."""
        return os.getpid() == self._pid and not self.post.closed and self._process.poll() is None

    def answers(self, deadline: float = 15.0) -> bool:
        """Whether it really does what it is asked: it may have been killed or stopped just now.

        After an interrupt it may still be loading what an earlier cell needed: that is waited for.
        """
        if not self.alive:
            return False
        self._asked += 1
        try:
            self.send("answer", self._asked)
        except LabError:
            return False
        return self.wait(deadline, "answered", self._asked) is not None

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def fileno(self) -> int:
        """For selectors: readable when `receive` has something."""
        return self.post.fileno()

    def send(self, *message: object, files: Sequence[int] = ()) -> None:
        """Ask for something: the methods `do_…` of the launcher."""
        try:
            self.post.send(message, files)
        except OSError:
            self.post.closed = True
            raise LabError(self.obituary()) from None

    def receive(self) -> list[tuple[Any, ...]]:
        """What it has said since the last time; never waits. `post.closed` when it is gone."""
        said, self._waiting = self._waiting, []
        while select.select([self.post], [], [], 0)[0] if not self.post.closed else False:
            self.post.pull()
        return [*said, *self.post.receive(wanted=False)]

    def wait(self, deadline: float, *wanted: object) -> tuple[Any, ...] | None:
        """The message that begins with these words; others stay for `receive`. None: too late."""
        until = time.monotonic() + deadline
        others: list[tuple[Any, ...]] = []
        try:
            while True:
                for number, message in enumerate(received := self.receive()):
                    if message[: len(wanted)] == wanted:
                        others.extend(received[number + 1 :])
                        return message
                    others.append(message)
                left = until - time.monotonic()
                if left <= 0 or self.post.closed:
                    return None
                select.select([self.post], [], [], left)
        finally:
            self._waiting = [*others, *self._waiting]

    def spawn(
        self,
        number: int,
        command: Sequence[str],
        environment: Mapping[str, str],
        folder: str,
        out: int,
        err: int,
    ) -> None:
        """Start a command in a session of its own. It says ("spawned", number, pid) or
        ("refused", number, why), and at the end ("gone", number, exit code).
        """
        words = [*map(str, command)]
        self.send("spawn", number, words, dict(environment), str(folder), files=(out, err))

    def at_end(self, *commands: Sequence[str]) -> None:
        """Commands to run when this process is gone without `close`; these replace earlier ones."""
        environment = dict(os.environ)
        self.send("at_end", [([*map(str, command)], environment) for command in commands])

    def signal_command(self, number: int, signal_number: int) -> None:
        """Signal a command and all of its group."""
        self.send("signal_command", number, signal_number)

    def stop(self, run: int, deadline: float = LEAVING) -> bool:
        """End everything it has started, and wait for it. False: it did not answer in time."""
        try:
            self.send("stop", run)
        except LabError:
            return False
        return self.wait(deadline, "stopped", run) is not None

    def close(self, *, now: bool = False) -> None:
        """Let it go: it ends all that it started, and itself. `now`: it has started nothing yet."""
        if os.getpid() != self._pid:
            self.post.close()
            return
        with suppress(LabError):
            self.send("at_end", [])
        self.post.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(0.0 if now else LEAVING)
        if self._process.poll() is None:
            self._process.kill()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(LEAVING)
        self._words.close()

    def obituary(self) -> str:
        """How it ended, in a sentence."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        code = self._process.poll()
        said = self._last_words()
        return (
            f"The launcher of the ranks has ended (exit status {code}), and they with it. "
            f"{f'It said: {said} ' if said else ''}Run it again: a new one is started."
        )

    def _begin(self, network: str, environment: Mapping[str, str] | None) -> None:
        if not sys.executable:
            raise LabError(
                "Python does not know its own program here, so no ranks can be started. "
                "Start JupyterLab with `make lab` or `labkit lab`."
            )
        ours, its = socket.socketpair()
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 (closed by close())
        number = its.fileno()
        command = [sys.executable, "-P", "-m", "labkit.cluster.launcher"]
        command += [str(number), str(os.getpid()), network]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=self._words,
                stderr=self._words,
                pass_fds=(number,),
                env=_with_labkit(os.environ if environment is None else environment),
                start_new_session=True,  # so that Ctrl-C in a terminal is not meant for it
            )
        except OSError as fault:
            ours.close()
            self._words.close()
            raise LabError(
                f"The launcher of the ranks cannot be started: {fault}. "
                "End programs that you do not need, and try again."
            ) from fault
        finally:
            its.close()
        self.post = Post(ours)

    def _await_hello(self, deadline: float) -> str:
        try:
            hello = self.wait(deadline, "hello")
        except BaseException:
            self.close()  # an interrupt in the middle of starting
            raise
        if hello is None:
            said = self._last_words()
            self.close()
            raise LabError(
                f"The launcher of the ranks did not start within {deadline:g} s. "
                f"{f'It said: {said}' if said else 'Give it more time with start=.'}"
            )
        return str(hello[1])

    def _last_words(self) -> str:
        try:
            self._words.seek(0)
            return self._words.read().decode(errors="replace").strip()[-600:]
        except (OSError, ValueError):
            return ""


def _with_labkit(environment: Mapping[str, str]) -> dict[str, str]:
    """The launcher is of the labkit that runs now, whatever others there are."""
    home = str(Path(__file__).parents[2])
    changed = dict(environment)
    # Where packages are installed, Python looks by itself, and after its own library.
    if "site-packages" not in home:
        known = changed.get("PYTHONPATH")
        changed["PYTHONPATH"] = f"{home}{os.pathsep}{known}" if known else home
    return changed
