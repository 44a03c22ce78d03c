"""The client's end of a fork server: start one, talk to it, keep it warm, let it go."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from labkit.cluster.channel import Channel
from labkit.kinds import LabError

__all__ = ["ForkServer", "in_a_kernel", "keep_warm", "shutdown", "take_warm"]

LEAVING = 8.0  # seconds for a fork server to end by itself, having ended all else
WARM_SECONDS = 600.0
MARK = "LABKIT_FORK_SERVER"  # in the environment of all that a fork server starts
# Libraries read these when they are imported, which the fork server does for all runs to come.
READ_AT_IMPORT = ("TF_", "KERAS_", "CUDA", "XLA_", "NVIDIA_", "LD_", "PYTHON", "MKL_", "JAX_")
SHARED = (
    "The ranks can have no private network here: {why}. TensorFlow's servers accept everybody who "
    "can reach them, without a password, and let them read and write your files; in the shared "
    "network that is every user of this machine, and every machine that can connect to it. "
    "If you accept that, write labkit.cluster(..., network='shared'), or set "
    "LABKIT_NETWORK=shared for the whole session."
)


class ForkServer:
    """A fork server of our own. `network="own"` puts it and its ranks into a private network."""

    def __init__(self, network: str, environment: Mapping[str, str], timeout: float) -> None:
        self._received: list[tuple[Any, ...]] = []
        self._answers = 0
        self.mark = uuid.uuid4().hex
        if not sys.executable:
            raise LabError(
                "Python does not know its own program here, so no ranks can be started. "
                "Start JupyterLab with `make lab` or `labkit lab`."
            )
        ours, its = socket.socketpair()
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 (closed by close())
        arguments = [str(its.fileno()), str(os.getpid()), network]
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "labkit.cluster.fork_server", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=self._words,
                stderr=self._words,
                pass_fds=(its.fileno(),),
                env={**environment, **_python_path(environment), MARK: self.mark},
                start_new_session=True,  # so that it gets no Ctrl-C of a terminal
            )
        except OSError as fault:
            ours.close()
            self._words.close()
            raise LabError(
                f"The fork server of the ranks cannot be started: {fault}. "
                "End programs that you do not need, and try again."
            ) from fault
        finally:
            its.close()
        self.channel = Channel(ours)
        try:
            hello = self.wait(timeout, "hello")
            if hello is None:
                said = self._last_words()
                raise LabError(
                    f"The fork server of the ranks did not start within {timeout:g} s. "
                    + (f"It said: {said}" if said else "Give it more time with start=.")
                )
            if hello[1]:
                raise LabError(SHARED.format(why=hello[1]))
        except BaseException:
            self.close()
            raise

    @property
    def alive(self) -> bool:
        """Whether it can be asked for something."""
        return not self.channel.closed and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def fileno(self) -> int:
        """For selectors: readable when `receive` has something."""
        return self.channel.fileno()

    def send(self, *message: object, files: Sequence[int] = ()) -> None:
        """Ask for something: the methods `do_…` of the server."""
        try:
            self.channel.send(*message, files=files)
        except OSError:
            self.channel.closed = True
            raise LabError(self.obituary()) from None
        except BaseException:
            self.channel.close()  # an interrupt may have left half a message
            raise

    def receive(self) -> list[tuple[Any, ...]]:
        """What it has said since the last time; never waits. `channel.closed` when it is gone."""
        found, self._received = self._received, []
        while not self.channel.closed and select.select([self.channel], [], [], 0)[0]:
            found += self.channel.receive()
        return found

    def wait(self, timeout: float, *wanted: object) -> tuple[Any, ...] | None:
        """The message that begins with these words; others stay for `receive`. None: too late."""
        until = time.monotonic() + timeout
        others: list[tuple[Any, ...]] = []
        try:
            while True:
                messages = self.receive()
                for number, message in enumerate(messages):
                    if message[: len(wanted)] == wanted:
                        others += messages[number + 1 :]
                        return message
                    others.append(message)
                left = until - time.monotonic()
                if left <= 0 or self.channel.closed:
                    return None
                select.select([self.channel], [], [], left)
        finally:
            self._received = [*others, *self._received]

    def answers(self, timeout: float = 15.0) -> bool:
        """Whether it is at work. After an interrupt it may still import: wait for that."""
        if not self.alive:
            return False
        self._answers += 1
        try:
            self.send("answer", self._answers)
        except LabError:
            return False
        return self.wait(timeout, "answered", self._answers) is not None

    def stop(self, run: int, timeout: float = LEAVING) -> bool:
        """End all that the run has started. False: it did not answer in time."""
        try:
            self.send("stop", run)
        except LabError:
            return False
        return self.wait(timeout, "stopped", run) is not None

    def close(self, *, now: bool = False) -> None:
        """Let it go: it ends all that it started, and itself. `now`: without waiting for that."""
        self.channel.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(0.0 if now else LEAVING)
        if self._process.poll() is None:
            self._process.kill()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(LEAVING)
        if self._process.returncode != 0:
            _kill_marked(self.mark)
        self._words.close()

    def obituary(self) -> str:
        """How it ended, in a sentence."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        said, code = self._last_words(), self._process.poll()
        return (
            f"The fork server of the ranks has ended (exit status {code}), and they with it. "
            f"{f'It said: {said} ' if said else ''}Run it again: a new one is started."
        )

    def _last_words(self) -> str:
        try:
            self._words.seek(0)
            return self._words.read().decode(errors="replace").strip()[-600:]
        except (OSError, ValueError):
            return ""


# The warm pool: fork servers that wait for the next cell of a notebook.

_warm: dict[tuple[Any, ...], ForkServer] = {}


def in_a_kernel() -> bool:
    """Whether this is a notebook's kernel, where another cell may come."""
    kernel = sys.modules.get("ipykernel.zmqshell")
    return kernel is not None and bool(kernel.ZMQInteractiveShell.initialized())


def take_warm(network: str, environment: Mapping[str, str]) -> ForkServer | None:
    """A warm server for such a network and environment."""
    server = _warm.pop(_key(network, environment), None)
    if server is not None and not server.answers():
        server.close()
        return None
    return server


def keep_warm(network: str, environment: Mapping[str, str], server: ForkServer) -> None:
    """Keep a server for ten minutes. Only one is kept: each holds a copy of TensorFlow."""
    shutdown()
    try:
        server.send("idle", WARM_SECONDS)
    except LabError:
        server.close()
    else:
        _warm[_key(network, environment)] = server


def shutdown() -> None:
    """End the processes that a notebook keeps warm for its next cluster."""
    while _warm:
        _, server = _warm.popitem()
        server.close()


def _key(network: str, environment: Mapping[str, str]) -> tuple[Any, ...]:
    read = sorted(item for item in environment.items() if item[0].startswith(READ_AT_IMPORT))
    return os.getpid(), network, sys.executable, tuple(read)


def _python_path(environment: Mapping[str, str]) -> dict[str, str]:
    """The server is of the labkit that runs now, whatever others there are."""
    home = str(Path(__file__).parents[2])
    if "site-packages" in home:  # Python looks there by itself, after its own library
        return {}
    known = environment.get("PYTHONPATH")
    return {"PYTHONPATH": f"{home}{os.pathsep}{known}" if known else home}


def _kill_marked(mark: str) -> None:
    """Kill what a fork server that was itself killed has left: processes in sessions of their own.

    On Linux only. It misses a process that has cleared its environment, and it is not called when
    this process is killed together with the server: then only sessions of their own stay.
    """
    entry = f"{MARK}={mark}".encode()
    for _ in range(3):  # one that is being forked just now may be missed once
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if entry in (folder / "environ").read_bytes():
                    os.kill(int(folder.name), signal.SIGKILL)
