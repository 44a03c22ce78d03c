"""The client of a fork server: starts the server, sends it messages, keeps it warm, ends it."""

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from socket import socketpair
from typing import Any

from labkit.cluster.here.channel import Channel
from labkit.cluster.links.network import Network
from labkit.cluster.links.traffic import Samples
from labkit.kinds import LabError

LEAVING = 8.0  # seconds for a fork server to end by itself, having ended all else
WARM_SECONDS = 600.0
MARK = "LABKIT_FORK_SERVER"  # in the environment of all that a fork server starts
# Libraries read these when they are imported, which the fork server does for all runs to come.
READ_AT_IMPORT = ("TF_", "KERAS_", "XLA_", "NVIDIA_", "LD_", "PYTHON", "MKL_", "JAX_")
SHARED = (
    "The ranks can have no private network here: {why}. TensorFlow's servers accept everybody who "
    "can reach them, without a password, and let them read and write your files; in the shared "
    "network that is every user of this machine, and every machine that can connect to it. "
    "If you accept that, write labkit.cluster(..., network='shared'), or set "
    "LABKIT_NETWORK=shared for the whole session."
)


class ForkServer:
    """A fork server that this process has started. `network="own"` gives it a private network."""

    def __init__(
        self, network: str, environment: Mapping[str, str], timeout: float, python: str
    ) -> None:
        self.mark = uuid.uuid4().hex
        ours, its = socketpair()
        self.channel = Channel(ours)
        self.links: Network | None = None
        self.samples: Samples = []
        """Samples of the links' counters in the last run."""
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed by close())
        # Ranks are killed: they cannot remove what they made. TensorFlow makes many small files.
        self.folder = str(Path(tempfile.gettempdir(), f"labkit-ranks-{self.mark[:8]}"))
        arguments = [str(its.fileno()), str(os.getpid()), network, self.folder]
        with its:
            self._process = subprocess.Popen(
                [python, "-P", "-m", "labkit.cluster.here.fork_server", *arguments],
                stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log,
                pass_fds=(its.fileno(),), start_new_session=True,  # it gets no Ctrl-C of a terminal
                env={**environment, "PYTHONPATH": _python_path(environment),
                     "TMPDIR": self.folder, MARK: self.mark},
            )  # fmt: skip
        try:
            hello = self.wait(timeout, "hello")
            if hello is None:
                raise LabError(
                    f"The fork server of the ranks did not start within {timeout:g} s. Give it "
                    f"more time with start=. {self._last_words()}".rstrip()
                )
            if hello[1]:
                raise LabError(SHARED.format(why=hello[1]))
        except BaseException:
            self.close()
            raise

    @property
    def running(self) -> bool:
        """Whether messages can reach it."""
        return not self.channel.closed and self._process.poll() is None

    def fileno(self) -> int:
        """For selectors: readable when `receive` would return a message."""
        return self.channel.fileno()

    def send(self, *message: object, files: Sequence[int] = ()) -> None:
        """Call a method `do_…` of the server."""
        try:
            self.channel.send(*message, files=files)
        except OSError:
            self.channel.closed = True
            raise LabError(self.obituary()) from None
        except BaseException:
            self.channel.close()  # an interrupt may have left half a message
            raise

    def receive(self) -> list[tuple[Any, ...]]:
        """Returns its messages since the last call, without waiting."""
        found: list[tuple[Any, ...]] = []
        while not self.channel.closed and select.select([self.channel], [], [], 0)[0]:
            found += self.channel.receive()
        return found

    def wait(self, timeout: float, *wanted: object) -> tuple[Any, ...] | None:
        """Wait for the message that begins with these words and return it, or None if it is late.

        Other messages are dropped.
        """
        until = time.monotonic() + timeout
        while not self.channel.closed and (left := until - time.monotonic()) > 0:
            select.select([self.channel], [], [], left)
            for message in self.receive():
                if message[: len(wanted)] == wanted:
                    return message
        return None

    def stop(self, run: int = 0, timeout: float = LEAVING) -> bool:
        """End all that was started for a run. Returns whether the server answered in time."""
        with suppress(LabError):
            self.send("stop", run)
            if answer := self.wait(timeout, "stopped", run):
                self.samples = answer[2]
                return True
        return False

    def make_links(self, links: Network | None, timeout: float) -> str:
        """Replace the server's hosts and links. Returns why they cannot be had, or ""."""
        if links == self.links:
            return ""
        answer = None
        try:
            self.send("network", links)
            answer = self.wait(timeout, "network")
        finally:
            if answer is None:  # its hosts are unknown, as after an interrupt
                self.channel.close()
        why = answer[1] if answer else f"they were not made within {timeout:g} s"
        self.links = None if why else links
        return str(why)

    def close(self, timeout: float = LEAVING) -> None:
        """Let the server end all that it started, then itself. After `timeout` it is killed."""
        self.channel.close()
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.returncode != 0:
            _kill_marked(self.mark)
        shutil.rmtree(self.folder, ignore_errors=True)
        self._log.close()

    def obituary(self) -> str:
        """Returns a sentence on how the server ended."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(LEAVING)
        return (
            f"The fork server of the ranks has ended (exit status {self._process.poll()}), and "
            f"they with it. Run it again: a new one is started. {self._last_words()}".rstrip()
        )

    def _last_words(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace").strip()[-600:]


# The warm pool. Only one server is kept: each holds a copy of TensorFlow.

_warm: dict[tuple[Any, ...], ForkServer] = {}


def in_a_kernel() -> bool:
    """Whether this process is a notebook's kernel, so that another cell may come."""
    kernel = sys.modules.get("ipykernel.zmqshell")
    return kernel is not None and bool(kernel.ZMQInteractiveShell.initialized())


def key_of(network: str, environment: Mapping[str, str], python: str) -> tuple[Any, ...]:
    """Returns a key: a server can take the place of another with the same key."""
    read = sorted(item for item in environment.items() if item[0].startswith(READ_AT_IMPORT))
    return os.getpid(), network, python, tuple(read)


def take_warm(key: tuple[Any, ...], timeout: float) -> ForkServer | None:
    """Returns the warm server with this key, if there is one. It may still be importing."""
    server = _warm.pop(key, None)
    if server is not None and not server.stop(timeout=timeout):
        server.close()
        return None
    return server


def keep_warm(key: tuple[Any, ...], server: ForkServer, seconds: float | None = None) -> None:
    """Keep a server for the next block, for ten minutes."""
    shutdown()
    try:
        server.send("idle", seconds or WARM_SECONDS)
    except LabError:
        server.close()
    else:
        _warm[key] = server


def shutdown() -> None:
    """End the processes that a notebook keeps warm for its next cluster."""
    for key in [key for key in _warm if key[0] == os.getpid()]:  # not those of a fork's parent
        _warm.pop(key).close()


def _python_path(environment: Mapping[str, str]) -> str:
    """Returns a path on which the server finds the labkit that runs now."""
    home, known = str(Path(__file__).parents[3]), environment.get("PYTHONPATH")
    if "site-packages" in home:  # Python looks there by itself, after its own library
        return known or ""
    return f"{home}{os.pathsep}{known}" if known else home


def _kill_marked(mark: str) -> None:
    """Kill what a killed fork server has left: processes in sessions of their own (Linux only).

    It misses a process that has cleared its environment. If this process is killed together with
    the server, this function is not called, and such a process goes on.
    """
    entry = f"{MARK}={mark}".encode()
    for _ in range(3):  # a process that is being forked just now may be missed once
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if entry in (folder / "environ").read_bytes():
                    os.kill(int(folder.name), signal.SIGKILL)
