"""The launcher: a small process beside yours that forks the ranks, and ends all that it started.

It is warm: it has loaded what programs need and run none of it, so that a rank starts at once.
When its asker is gone, it ends everything and itself.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from labkit.cluster.forked import become_rank
from labkit.cluster.messages import Post
from labkit.cluster.namespace import enter_own_network
from labkit.cluster.processes import Processes
from labkit.cluster.spares import MOST, Spares

__all__ = ["main"]

ADOPT = 36  # PR_SET_CHILD_SUBREAPER
LAST_COMMAND = 15.0  # seconds for a command such as scancel, when the asker is gone
LARGE = ("tensorflow", "torch")  # to copy a process with one of them takes several milliseconds
UNPACKING = "cloudpickle"  # every program comes packed by it
IDLE = 0.02  # seconds without a word: then there is time to fork what may be asked for next
SIGNALS = {"kill": signal.SIGKILL, "pause": signal.SIGSTOP, "resume": signal.SIGCONT}


@dataclass
class _Launcher:
    post: Post
    asker: int
    environment: dict[str, str] = field(default_factory=dict)
    run: int = 0
    last: list[tuple[list[str], dict[str, str]]] = field(default_factory=list)
    rest_until: float = float("inf")
    own_files: list[int] = field(default_factory=list)
    spares: Spares = field(default_factory=Spares)
    asked: int = 0  # ranks of the latest run

    def __post_init__(self) -> None:
        self.processes = Processes(self.spares, self.say)

    def serve(self) -> None:
        """Do what is asked until nobody is there to ask."""
        woken, waker = os.pipe()
        os.set_blocking(woken, False)
        os.set_blocking(waker, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        with selectors.DefaultSelector() as selector:
            selector.register(self.post, selectors.EVENT_READ)
            selector.register(woken, selectors.EVENT_READ)
            self.own_files = [self.post.fileno(), woken, waker]
            if isinstance(selector, getattr(selectors, "EpollSelector", ())):
                self.own_files.append(selector.fileno())
            while not self.post.closed and time.monotonic() < self.rest_until:
                if os.getppid() != self.asker:
                    return  # a fork of the asker may hold its end of the post open
                lacking = not self.processes.has_ranks and len(self.spares) < self.worth_having
                happened = selector.select(IDLE if lacking else 1.0)
                if lacking and not happened:
                    self.spares.add(self.own_files)
                for key, _ in happened:
                    if key.fileobj is self.post:
                        for message in self.post.receive():
                            self.rest_until = float("inf")
                            getattr(self, f"do_{message[0]}")(*message[1:])
                    else:
                        with suppress(BlockingIOError):
                            os.read(woken, 4096)
                self.processes.reap()

    @property
    def worth_having(self) -> int:
        """How many spare ranks: as many as the latest run had, where a fork is not done at once."""
        large = sys.platform == "linux" and any(name in sys.modules for name in LARGE)
        return min(self.asked, MOST) if large else 0

    def say(self, *message: object) -> None:
        """To the asker, who may be gone: then `serve` sees it."""
        with suppress(OSError):
            self.post.send(message)

    def do_preload(self, run: int, names: list[str]) -> None:
        """Load modules, so that ranks have them. What fails here fails in the rank, and is told."""
        missing = [name for name in (UNPACKING, *names) if name not in sys.modules]
        if not missing:
            self.say("preloaded", run)
            return
        self.spares.send_away()
        for name in missing:
            with suppress(BaseException):
                importlib.import_module(name)
        gc.collect()
        gc.freeze()  # a collection in a rank would copy every page of the launcher's objects
        self.say("preloaded", run)

    def do_run(self, run: int, environment: dict[str, str]) -> None:
        """A new run; what follows belongs to it."""
        self.run, self.environment, self.asked = run, environment, 0

    def do_fork(self, rank: int, differing: dict[str, str], held: str, files: int) -> None:
        """Fork a rank."""
        taken = self.post.files(files)
        environment = {**self.environment, **differing}
        self.asked += 1
        pid = self.spares.use(rank, environment, held, taken)
        if pid is None:
            parent = os.getpid()
            gc.disable()
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                for file in self.own_files:
                    os.close(file)
                become_rank(rank, environment, held, taken, parent)
            gc.enable()
        for file in taken:
            os.close(file)
        self.processes.add_rank(pid, self.run, rank)

    def do_spawn(
        self, number: int, command: list[str], environment: dict[str, str], folder: str
    ) -> None:
        """Start a command in a session of its own; its output goes to the two files sent along."""
        out, err = self.post.files(2)
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=environment,
                cwd=folder,
                start_new_session=True,
            )
        except OSError as fault:
            self.say("refused", number, str(fault))
        else:
            process.returncode = 0  # `reap` waits for it, not subprocess
            self.processes.add_command(process.pid, number)
            self.say("spawned", number, process.pid)
        finally:
            os.close(out)
            os.close(err)

    def do_at_end(self, commands: list[tuple[list[str], dict[str, str]]]) -> None:
        """Commands to run when the asker is gone without having taken them back."""
        self.last = commands

    def do_signal(self, rank: int, what: str) -> None:
        """Kill, stop or continue a rank, with all of its group."""
        self.processes.signal_rank(self.run, rank, SIGNALS[what])

    def do_signal_command(self, number: int, signal_number: int) -> None:
        """Signal a command, with all of its group."""
        self.processes.signal_command(number, signal_number)

    def do_stacks(self, ranks: list[int]) -> None:
        """Ask ranks where they are, and say which cannot answer because they are stopped."""
        for rank in ranks:
            if not self.processes.ask_where(self.run, rank):
                self.say("paused", self.run, rank)

    def do_stop(self, run: int) -> None:
        """End all that the run has started."""
        self.processes.end_all()
        self.say("stopped", run)

    def do_answer(self, number: int) -> None:
        """Show that the launcher is at work."""
        self.say("answered", number)

    def do_rest(self, seconds: float) -> None:
        """End by itself when nothing is asked for so long."""
        self.rest_until = time.monotonic() + seconds

    def last_words_of_the_asker(self) -> None:
        """It may have been killed right after it had said what is to be done at the end."""
        self.post.end.setblocking(False)
        while self.post.pull():
            pass
        for what, *rest in self.post.receive(wanted=False):
            if what == "at_end":
                self.do_at_end(*rest)

    def last_commands(self) -> None:
        """What must still be done when the asker is gone, such as scancel."""
        started = []
        for command, environment in self.last:
            with suppress(OSError):
                started.append(
                    subprocess.Popen(
                        command,
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL,
                        env=environment,
                        start_new_session=True,
                    )
                )
        until = time.monotonic() + LAST_COMMAND
        for process in started:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))


def main(arguments: list[str]) -> int:
    """Serve the asker at the other end of the file with this number."""
    number, asker, network = int(arguments[0]), int(arguments[1]), arguments[2]
    post = Post(socket.socket(fileno=number))
    os.set_inheritable(number, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(ADOPT, 1)
    refused = enter_own_network() if network == "own" else ""
    launcher = _Launcher(post, asker)
    launcher.say("hello", refused)
    if refused:
        return 3
    # Asked to end, it ends as it should: by way of the `finally`.
    signal.signal(signal.SIGTERM, _leave)
    try:
        launcher.serve()
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        launcher.spares.send_away()
        launcher.processes.end_all()
        launcher.last_words_of_the_asker()
        launcher.last_commands()
    return 0


def _leave(*_: Any) -> None:
    raise SystemExit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
