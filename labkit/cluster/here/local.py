"""The engine of this machine: a warm fork server forks the ranks in a private network."""

from __future__ import annotations

import os
import selectors
import socket
import sys
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from labkit.arguments import one_of
from labkit.cluster.here import fork_client
from labkit.cluster.here.channel import Channel
from labkit.cluster.here.fork_client import MARK, ForkServer
from labkit.cluster.links.network import Network
from labkit.cluster.links.traffic import Samples
from labkit.cluster.ranks.environment import gpus, local_variables, on_cpus
from labkit.cluster.ranks.ports import HOST, PORTS, free_ports
from labkit.cluster.ranks.protocol import Addresses, Event, RunSpec, Signal
from labkit.kinds import LabError

STOPPING = 4.0  # seconds for the fork server to report that all is gone; it may be importing
CHUNK = 1 << 20  # bytes: more than a pipe holds
# The fork server imports NumPy with one thread; each rank then makes its own.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


@dataclass
class RankPipes:
    """The client's ends of a rank's stdout, stderr, channel and stacks."""

    rank: int
    channel: Channel
    files: dict[int, Literal["out", "err", "stack", "channel"]]
    started: bool = False
    ended: bool = False

    @staticmethod
    def made(rank: int) -> tuple[RankPipes, tuple[int, ...]]:
        """Returns the client's ends, and the rank's: stdout, stderr, channel and stacks."""
        ours, its = socket.socketpair()
        out, err, stack = os.pipe(), os.pipe(), os.pipe()
        files: Any = {out[0]: "out", err[0]: "err", stack[0]: "stack", ours.fileno(): "channel"}
        for file in files:
            os.set_blocking(file, False)
        return RankPipes(rank, Channel(ours), files), (out[1], err[1], its.detach(), stack[1])

    def read(self, file: int) -> list[Event]:
        """Returns what has come through a file, without waiting, and closes it at its end."""
        kind = self.files[file]
        if kind == "channel":
            return self._messages(file)
        try:
            data = os.read(file, CHUNK)
        except BlockingIOError:
            return []
        if not data:
            self.close(file)
            return []
        value = data.decode(errors="replace") if kind == "stack" else data
        return [Event(self.rank, kind, value)]

    def close(self, file: int) -> None:
        """Read no more from a file."""
        if self.files.pop(file) == "channel":
            self.channel.close()
        else:
            os.close(file)

    def _messages(self, file: int) -> list[Event]:
        found: list[Event] = []
        for what, value in self.channel.receive():
            self.started = True
            if what != "started":
                # The rank wrote its last lines before this, and they may still be in the pipes.
                for other in [other for other, kind in self.files.items() if kind != "channel"]:
                    found += self.read(other)
            found.append(Event(self.rank, what, value))
        if self.channel.closed:
            self.close(file)
        return found


@dataclass
class _LocalRun:
    number: int
    ranks: list[RankPipes] = field(default_factory=list)
    begun: bool = False


class LocalEngine:
    """Ranks on this machine. `network`: "own" (private) or "shared"."""

    name = "local"

    def __init__(
        self,
        network: str | None = None,
        keep_warm: bool | None = None,
        python: str = sys.executable,
    ) -> None:
        network = network or os.environ.get("LABKIT_NETWORK", "own")
        self.network = one_of("network", network, ("own", "shared"))
        self.private_network = network == "own"
        self.python = python
        self.keep_warm = fork_client.in_a_kernel() if keep_warm is None else keep_warm
        self._ranks, self._start = 0, 60.0
        self._environment: dict[str, str] = {}
        self._links: Network | None = None
        self._server: ForkServer | None = None
        self._run: _LocalRun | None = None
        self.samples: Samples = []
        """Samples of the links' counters in the run that was stopped last."""
        self.take: Callable[[float, dict[str, tuple[int, int]]], None] | None = None
        """If set, it is called with the samples of the links while runs go on."""
        self._count = int(time.monotonic() * 1000)  # unique for one server

    def open(self, ranks: int, start: float, environment: Mapping[str, str | None]) -> None:
        """Take a warm fork server, or start one."""
        self._ranks, self._start = ranks, start
        changed = {**os.environ, **environment}
        self._environment = {name: text for name, text in changed.items() if text is not None}
        self._key = fork_client.key_of(self.network, self._environment, self.python)
        self._ensure()

    def warm(self, modules: tuple[str, ...], seconds: float) -> None:
        """Have a fork server import modules meanwhile, and keep it for so long for a later run."""
        self.open(1, self._start, {})
        assert self._server is not None
        self._server.send("run", 0, dict(os.environ), RunSpec(b"", (), modules, ()))
        fork_client.keep_warm(self._key, self._server, seconds)
        self._server = None

    def make_links(self, links: Network) -> str:
        """Put the ranks on hosts with these links. Returns why they cannot be had, or ""."""
        if not self.private_network:
            return "they need a private network, and these ranks share the machine's"
        why = self._ensure().make_links(links, self._start)
        self._links = None if why else links
        return why

    def describe(self) -> str:
        """Returns where the ranks run."""
        if self._links is not None:
            words = f"on this machine, as {self._links}"
        else:
            network = "a private" if self.private_network else "its shared"
            words = f"on this machine, in {network} network"
        if gpus() and on_cpus(self._ranks, self._links):
            words += f", on CPUs (it has {len(gpus())} GPU{'s' * (len(gpus()) > 1)})"
        return words

    def addresses(self) -> Addresses:
        """Returns addresses. All ports of a private network are free, else free ones are chosen."""
        count = self._ranks + 1
        found = tuple(PORTS[:count]) if self.private_network else free_ports(count)
        hosts = [HOST] * count
        if self._links is not None:
            of_hosts = self._links.addresses
            hosts = [*(of_hosts[host] for host in self._links.hosts), of_hosts[0]]
        *ranks, master = (f"{host}:{port}" for host, port in zip(hosts, found, strict=True))
        return Addresses(tuple(ranks), master)

    def start(self, spec: RunSpec) -> None:
        """Have the server import what is needed and fork the ranks."""
        self.stop()
        server = self._ensure()
        self._count += 1
        self._run = run = _LocalRun(self._count)
        # LABKIT_NETWORK: what a rank cannot download is then explained by its network.
        ours = {MARK: server.mark, "LABKIT_NETWORK": self.network, "TMPDIR": server.folder}
        common = {**os.environ, **ours}
        environments = (
            local_variables(self._ranks, rank, self._links) | dict(changes)
            for rank, changes in enumerate(spec.environment)
        )
        spec = replace(spec, environment=tuple(environments))
        server.send("run", run.number, common, spec)
        for rank in range(self._ranks):
            pipes, theirs = RankPipes.made(rank)
            run.ranks.append(pipes)
            try:
                server.send("fork", rank, files=theirs)
            finally:
                for other in theirs:
                    os.close(other)

    def events(self, timeout: float) -> list[Event]:
        """Returns what has happened."""
        run, server = self._run, self._server
        if run is None or server is None:
            return []
        found: list[Event] = []
        owners = {file: pipes for pipes in run.ranks for file in pipes.files}
        with selectors.PollSelector() as selector:
            for file in (server.fileno(), *owners):
                selector.register(file, selectors.EVENT_READ)
            ready = [key.fd for key, _ in selector.select(max(0.0, timeout))]
        for file in ready:
            if file in owners and file in owners[file].files:
                found += owners[file].read(file)
        if not run.begun and all(pipes.started for pipes in run.ranks):
            run.begun = True
            for pipes in run.ranks:
                with suppress(OSError):
                    pipes.channel.send("begin")
        if server.fileno() in ready:
            for message in server.receive():
                found += self._from_server(run, *message)
        if server.channel.closed:
            why = server.obituary()
            for pipes in run.ranks:
                found += _end_of(pipes, -9, why)
        return found

    def ask_stacks(self, ranks: Collection[int]) -> None:
        """Ask with a signal that faulthandler answers, also while Python is stuck in a library."""
        self._send("stacks", sorted(ranks))

    def signal(self, rank: int, what: Signal) -> None:
        """Kill or pause a rank and all that it has started in its group."""
        self._send("signal", rank, what)

    def stop(self) -> None:
        """End the run. If Ctrl-C interrupts this call, the next call does the rest."""
        run = self._run
        if run is None:
            return
        self.samples = []
        try:
            if self._server is not None and not self._server.stop(run.number, STOPPING):
                self._server.close(timeout=0.0)  # without it, no rank stays
            elif self._server is not None:
                self.samples = self._server.samples
                if self.take is not None and self.samples:
                    self.take(*self.samples[-1])
        finally:
            for pipes in run.ranks:
                for file in list(pipes.files):
                    pipes.close(file)
        self._run = None

    def close(self) -> None:
        """End the server. A notebook keeps it warm for the next cell."""
        try:
            self.stop()
        finally:
            server, self._server = self._server, None
            if server is not None and self.keep_warm and server.running:
                fork_client.keep_warm(self._key, server)
            elif server is not None:
                server.close()

    def _ensure(self) -> ForkServer:
        if self._server is not None and not self._server.running:
            self._server.close()
            self._server = None
        if self._server is None:
            self._server = fork_client.take_warm(self._key, self._start) or ForkServer(
                self.network, {**self._environment, **ONE_THREAD}, self._start, self.python
            )
            if why := self._server.make_links(self._links, self._start):
                raise LabError(f"The hosts of the ranks are gone: {why}. Open a new cluster.")
        return self._server

    def _send(self, *message: object) -> None:
        if self._server is not None and self._run is not None:
            with suppress(LabError):
                self._server.send(*message)

    def _from_server(self, run: _LocalRun, what: str, number: int, *rest: Any) -> list[Event]:
        if number != run.number:
            return []  # of a run that was stopped
        if what == "sample" and self.take is not None:
            self.take(*rest)
            return []
        if what == "paused":
            return [Event(rest[0], "paused")]
        return _end_of(run.ranks[rest[0]], rest[1]) if what == "ended" else []


def _end_of(pipes: RankPipes, code: int, reason: str = "") -> list[Event]:
    """Returns what an ended rank has left in its pipes, and then the event of its end."""
    if pipes.ended:
        return []
    pipes.ended = True
    last: list[Event] = []
    for file in list(pipes.files):
        last += pipes.read(file)
    for file in list(pipes.files):
        pipes.close(file)
    return [*last, Event(pipes.rank, "ended", code, reason)]
