"""The engine of this machine: ranks that a warm fork server forks, in a private network."""

from __future__ import annotations

import os
import selectors
import socket
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from labkit.cluster import fork_client
from labkit.cluster.channel import Channel
from labkit.cluster.engine import (
    Addresses,
    Ended,
    Event,
    Job,
    Raised,
    Returned,
    Signal,
    Stack,
    Started,
    Wrote,
)
from labkit.cluster.fork_client import MARK, ForkServer
from labkit.cluster.network import HOST, PORTS, free_ports
from labkit.kinds import LabError

__all__ = ["LocalEngine"]

STOPPING = 8.0  # seconds for the fork server to say that all is gone
CHUNK = 1 << 20  # bytes: more than a pipe holds
# The fork server imports NumPy with one thread; each rank then makes its own.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


@dataclass
class RankPipes:
    """Our ends of a rank's stdout, stderr, channel and stacks."""

    rank: int
    channel: Channel
    files: dict[int, Literal["out", "err", "stack", "channel"]]
    started: bool = False
    ended: bool = False

    @staticmethod
    def made(rank: int) -> tuple[RankPipes, tuple[int, ...]]:
        """Our ends, and the rank's: stdout, stderr, channel, stacks."""
        ours, its = socket.socketpair()
        out, err, stack = os.pipe(), os.pipe(), os.pipe()
        files: Any = {out[0]: "out", err[0]: "err", stack[0]: "stack", ours.fileno(): "channel"}
        for file in files:
            os.set_blocking(file, False)
        return RankPipes(rank, Channel(ours), files), (out[1], err[1], its.detach(), stack[1])

    def read(self, file: int) -> tuple[list[Event], bool]:
        """What has come through one of the files, and whether that was all. Never waits."""
        kind = self.files[file]
        if kind == "channel":
            return self._messages(), self.channel.closed
        try:
            data = os.read(file, CHUNK)
        except BlockingIOError:
            return [], False
        if not data:
            return [], True
        if kind == "stack":
            return [Stack(self.rank, data.decode(errors="replace"))], False
        return [Wrote(self.rank, kind, data)], False

    def close(self, file: int) -> None:
        """Read no more from it."""
        if self.files.pop(file) == "channel":
            self.channel.close()
        else:
            os.close(file)

    def _messages(self) -> list[Event]:
        found: list[Event] = []
        for what, value in self.channel.receive():
            if what == "started":
                self.started = True
                found.append(Started(self.rank, value, "this machine"))
                continue
            # The rank wrote its last lines before this, and they may still be in the pipes.
            for file in [file for file, kind in self.files.items() if kind in ("out", "err")]:
                found += self.read(file)[0]
            found.append((Returned if what == "returned" else Raised)(self.rank, value))
        return found


@dataclass
class _Run:
    number: int
    ranks: list[RankPipes] = field(default_factory=list)
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    preloaded: bool = False
    begun: bool = False


class LocalEngine:
    """Ranks on this machine. `network`: "own" (private) or "shared"."""

    name = "local"

    def __init__(
        self,
        network: str = "own",
        keep_warm: bool | None = None,
        environment: Mapping[str, str | None] | None = None,
    ) -> None:
        self.network = network
        self.keep_warm = fork_client.in_a_kernel() if keep_warm is None else keep_warm
        self._changed = dict(environment or {})
        self._ranks, self._start = 0, 60.0
        self._server: ForkServer | None = None
        self._server_environment: dict[str, str] = {}
        self._importing = False  # the server was left while it imported
        self._run: _Run | None = None
        self._count = int(time.monotonic() * 1000)  # unique for one server

    def open(self, ranks: int, start: float) -> None:
        """Take a warm fork server, or start one."""
        self._ranks, self._start = ranks, start
        self._ensure()

    def describe(self) -> str:
        """Where the ranks run."""
        if self.network == "own":
            return "on this machine, in a private network"
        return "on this machine, in its shared network"

    @property
    def server_pid(self) -> int | None:
        """The process that starts the ranks."""
        return self._server.pid if self._server else None

    def addresses(self) -> Addresses:
        """In a private network no other program can take a port; else free ones are chosen."""
        count = self._ranks + 1
        found = tuple(PORTS[:count]) if self.network == "own" else free_ports(count)
        *ranks, master = (f"{HOST}:{port}" for port in found)
        return Addresses(tuple(ranks), master)

    def start(self, job: Job) -> None:
        """Have the server import what is needed and fork the ranks; the rest comes as events."""
        self.stop()
        server = self._ensure()
        self._count += 1
        self._run = run = _Run(self._count)
        run.selector.register(server, selectors.EVENT_READ, None)
        # LABKIT_NETWORK: what a rank cannot download is then explained by its network.
        common = {**os.environ, MARK: server.mark, "LABKIT_NETWORK": self.network}
        server.send("run", run.number, common, job.program, job.modules)
        for rank, changes in enumerate(job.environment):
            held = job.addresses[rank] if self.network == "shared" else ""
            pipes, theirs = RankPipes.made(rank)
            run.ranks.append(pipes)
            for file in pipes.files:
                run.selector.register(file, selectors.EVENT_READ, pipes)
            try:
                server.send("fork", rank, dict(changes), held, files=theirs)
            finally:
                for other in theirs:
                    os.close(other)

    def events(self, timeout: float) -> list[Event]:
        """What has happened."""
        if self._run is None or self._server is None:
            return []
        found: list[Event] = []
        messages: list[tuple[Any, ...]] = []
        for key, _ in self._run.selector.select(max(0.0, timeout)):
            if key.data is None:
                messages = self._server.receive()
            elif key.fd in key.data.files:
                found += self._read(key.data, key.fd)
        for message in messages:
            found += self._from_server(*message)
        if self._server.channel.closed:
            why = self._server.obituary()
            for pipes in self._run.ranks:
                found += self._end_of(pipes, -9, why)
        return found

    def ask_stacks(self, ranks: Collection[int]) -> None:
        """By a signal that faulthandler answers, also where Python is stuck in a library."""
        self._tell("stacks", sorted(ranks))

    def signal(self, rank: int, what: Signal) -> None:
        """To the rank and all that it has started in its group."""
        self._tell("signal", rank, what)

    def stop(self) -> None:
        """End the run. After an interrupt in here the server knows, and does the rest."""
        run, self._run = self._run, None
        if run is None:
            return
        try:
            if self._server is not None:
                run.preloaded |= ("preloaded", run.number) in self._server.receive()
                # While it imports there are no ranks; it will find that there are to be none.
                timeout = STOPPING if run.preloaded else 0.0
                self._importing = not self._server.stop(run.number, timeout)
                if run.preloaded and self._importing:
                    self._server.close()  # it is stuck: without it, no rank stays
        finally:
            run.selector.close()
            for pipes in run.ranks:
                for file in list(pipes.files):
                    pipes.close(file)

    def close(self) -> None:
        """Let the server go; a notebook keeps it warm for the next cell."""
        try:
            self.stop()
        finally:
            server, self._server = self._server, None
            if server is not None and self.keep_warm and server.alive:
                fork_client.keep_warm(self.network, self._server_environment, server)
            elif server is not None:
                server.close(now=self._importing)

    def _ensure(self) -> ForkServer:
        if self._server is not None and not self._server.alive:
            self._server.close()
            self._server = None
        if self._server is None:
            changed = {**os.environ, **self._changed}
            environment = {name: value for name, value in changed.items() if value is not None}
            self._server_environment = environment
            self._server = fork_client.take_warm(self.network, environment)
            if self._server is None:
                environment = {**environment, **ONE_THREAD}
                self._server = ForkServer(self.network, environment, self._start)
        return self._server

    def _tell(self, *message: object) -> None:
        if self._server is not None and self._run is not None:
            with suppress(LabError):
                self._server.send(*message)

    def _read(self, pipes: RankPipes, file: int) -> list[Event]:
        assert self._run
        found, at_end = pipes.read(file)
        if at_end:
            self._run.selector.unregister(file)
            pipes.close(file)
        if not self._run.begun and all(one.started for one in self._run.ranks):
            self._run.begun = True
            for one in self._run.ranks:
                with suppress(OSError):
                    one.channel.send("begin")
        return found

    def _from_server(self, what: str, run: int, *rest: int) -> list[Event]:
        assert self._run
        if run != self._run.number:
            return []  # of a run that was stopped
        if what == "preloaded":
            self._run.preloaded = True
        if what == "paused":
            return [Stack(rest[0], "", paused=True)]
        return self._end_of(self._run.ranks[rest[0]], rest[1]) if what == "ended" else []

    def _end_of(self, pipes: RankPipes, code: int, reason: str = "") -> list[Event]:
        if pipes.ended:
            return []
        pipes.ended = True
        last: list[Event] = []
        for file in list(pipes.files):
            last += self._read(pipes, file)
        for file in list(pipes.files):
            if self._run:
                self._run.selector.unregister(file)
            pipes.close(file)
        return [*last, Ended(pipes.rank, code, reason)]
