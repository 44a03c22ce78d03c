"""The engine of this machine: ranks forked by a warm launcher, in a network of their own."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from labkit.cluster import ports, resting
from labkit.cluster.ends import Ends
from labkit.cluster.engine import Ended, Event, Job, Places, Ready, Said, Signal, Stack
from labkit.cluster.forked import GO
from labkit.cluster.launching import Launcher
from labkit.cluster.messages import unnamed_file
from labkit.cluster.surroundings import THREADS, share_of_cores
from labkit.kinds import LabError

__all__ = ["LocalEngine"]

STOPPING = 8.0  # seconds for the launcher to say that all is gone


@dataclass
class _Run:
    number: int
    program: Any
    ranks: list[Ends] = field(default_factory=list)
    going: bool = False
    loaded: bool = False


class LocalEngine:
    """Ranks on this machine. `network`: "own", where the system gives one, or "shared"."""

    name = "local"

    def __init__(
        self,
        network: str = "own",
        keep_warm: bool | None = None,
        environment: Mapping[str, str | None] | None = None,
    ) -> None:
        if network not in ("own", "shared"):
            raise LabError(
                f"network={network!r} is unknown. Choose 'own' (a private loopback, where the "
                "system has it) or 'shared' (this machine's, with its way to the internet)."
            )
        self.network = network
        self.keep_warm = resting.in_a_kernel() if keep_warm is None else keep_warm
        self._environment = dict(environment or {})
        self._ranks = 0
        self._launcher: Launcher | None = None
        self._loading = False  # the launcher was left while it loaded
        self._run: _Run | None = None
        self._selector: selectors.BaseSelector | None = None
        self._count = int(time.monotonic() * 1000)  # never twice the same with one launcher

    def open(self, ranks: int, deadline: float) -> None:
        """Take a launcher that rests, or start one."""
        self._ranks = ranks
        self._ensure(deadline)

    def describe(self) -> str:
        """Where the ranks run."""
        if self._launcher is None or not self._launcher.refused:
            if self.network == "own":
                return "on this machine, in a loopback network of their own"
            return "on this machine's loopback"
        return f"on this machine's loopback ({self._launcher.refused})"

    @property
    def launcher_pid(self) -> int | None:
        """The process that starts the ranks."""
        return self._launcher.pid if self._launcher else None

    def places(self) -> Places:
        """In a network of their own nobody else can take a port; else free ones are looked for."""
        launcher = self._ensure(30.0)
        if self.network == "own" and not launcher.refused:
            found = tuple(range(ports.OWN, ports.OWN + self._ranks + 1))
        else:
            found = ports.choose(self._ranks + 1)
        addresses = tuple(f"{ports.HOST}:{port}" for port in found)
        return Places(addresses[:-1], addresses[-1])

    def start(self, job: Job) -> None:
        """Have the launcher load what is needed and fork the ranks; all else comes as events."""
        self.stop()
        launcher = self._ensure(job.start)
        self._count += 1
        self._selector = selectors.DefaultSelector()
        self._selector.register(launcher, selectors.EVENT_READ, "launcher")
        self._run = run = _Run(self._count, unnamed_file())
        run.program.write(job.program)
        run.program.flush()
        launcher.send("preload", run.number, list(job.preload))
        held = launcher.refused or self.network != "own"
        # So that what they cannot load is not taken for a fault of the internet.
        shut_in = {} if held else {"LABKIT_NETWORK": "own"}
        common = {**job.environment[0], **shut_in}
        launcher.send("run", run.number, common)
        for number in range(job.ranks):
            mine = {**job.environment[number], **shut_in}
            differing = {k: v for k, v in mine.items() if common.get(k) != v}
            self._fork(launcher, run, number, differing, job.addresses[number] if held else "")

    def events(self, timeout: float) -> list[Event]:
        """What has happened."""
        if self._run is None or self._selector is None:
            return []
        found: list[Event] = []
        said: list[tuple[Any, ...]] = []
        assert self._launcher
        for key, _ in self._selector.select(max(0.0, timeout)):
            if key.data == "launcher":
                said = self._launcher.receive()
            else:
                found += self._from(key.data, key.fd)
        for message in said:
            found += self._from_launcher(message)
        if self._launcher.post.closed:
            found += self._orphaned()
        return found

    def ask_stacks(self, ranks: Collection[int]) -> None:
        """By a signal that faulthandler answers, also where Python is stuck in a library."""
        if self._launcher and self._run:
            with suppress(LabError):
                self._launcher.send("stacks", sorted(ranks))

    def signal(self, rank: int, what: Signal) -> None:
        """To the rank and all that it has started in its group."""
        if self._launcher and self._run:
            with suppress(LabError):
                self._launcher.send("signal", rank, what)

    def stop(self) -> None:
        """End the run. An interrupt in here leaves the launcher told, and it does the rest."""
        run, self._run = self._run, None
        if run is None:
            return
        try:
            launcher = self._launcher
            if launcher is not None:
                run.loaded = run.loaded or ("preloaded", run.number) in launcher.receive()
                # While it loads there are no ranks; it will find that there shall be none.
                patience = STOPPING if run.loaded else 0.0
                self._loading = not launcher.stop(run.number, patience)
                if run.loaded and self._loading:
                    launcher.close()  # it is stuck: without it, no rank stays
        finally:
            self._let_go(run)

    def close(self) -> None:
        """Let the launcher go; in a notebook it rests for the next cell."""
        try:
            self.stop()
        finally:
            launcher, self._launcher = self._launcher, None
            if launcher is not None:
                if self.keep_warm and launcher.alive:
                    resting.put(self._key(), launcher)
                else:
                    launcher.close(now=self._loading)

    def _key(self) -> tuple[Any, ...]:
        return resting.key_of(self.network, self._environment)

    def _ensure(self, deadline: float) -> Launcher:
        if self._launcher is not None and self._launcher.alive:
            return self._launcher
        if self._launcher is not None:
            self._launcher.close()
            self._launcher = None
        self._launcher = resting.take(self._key())
        if self._launcher is None:
            # NumPy and others make their threads when they are loaded, for all ranks to come.
            threads = dict.fromkeys(THREADS, str(share_of_cores(max(1, self._ranks))))
            environment = {**threads, **os.environ, **self._environment}
            self._launcher = Launcher(
                network=self.network,
                environment={k: v for k, v in environment.items() if v is not None},
                deadline=deadline,
            )
        return self._launcher

    def _fork(
        self, launcher: Launcher, run: _Run, number: int, differing: dict[str, str], held: str
    ) -> None:
        rank, theirs = Ends.made(number)
        run.ranks.append(rank)
        assert self._selector
        for file in rank.files:
            self._selector.register(file, selectors.EVENT_READ, rank)
        files = (*theirs, run.program.fileno())
        try:
            launcher.send("fork", number, differing, held, len(files), files=files)
        finally:
            for other in theirs:
                os.close(other)

    def _from_launcher(self, message: tuple[Any, ...]) -> list[Event]:
        assert self._run
        what, *rest = message
        if what == "preloaded" and rest[0] == self._run.number:
            self._run.loaded = True
        if what == "said":
            return [Said(rest[0])]
        if what not in ("ended", "paused") or rest[0] != self._run.number:
            return []  # of a run that was broken off
        rank = self._run.ranks[rest[1]]
        if what == "paused":
            return [Stack(rank.number, "", stopped=True)]
        if rank.ended is None:
            return self._the_end_of(rank, rest[2])
        return []

    def _the_end_of(self, rank: Ends, code: int, reason: str = "") -> list[Event]:
        rank.ended = code
        last: list[Event] = []
        for file in list(rank.files):
            last += self._from(rank, file)
        for file in list(rank.files):
            self._drop(rank, file)
        return [*last, Ended(rank.number, code, reason)]

    def _orphaned(self) -> list[Event]:
        assert self._run
        assert self._launcher
        found: list[Event] = []
        why = self._launcher.obituary()
        for rank in self._run.ranks:
            if rank.ended is None:
                found += self._the_end_of(rank, -9, why)
        return found

    def _from(self, rank: Ends, file: int) -> list[Event]:
        found = rank.read(file)
        if file in rank.at_end:
            self._drop(rank, file)
        if any(isinstance(event, Ready) for event in found):
            self._go_if_all_are_ready()
        return found

    def _go_if_all_are_ready(self) -> None:
        run = self._run
        assert run
        if not run.going and all(rank.ready for rank in run.ranks):
            run.going = True
            for rank in run.ranks:
                with suppress(OSError):
                    rank.post.end.send(GO)

    def _drop(self, rank: Ends, file: int) -> None:
        if self._selector is not None:
            self._selector.unregister(file)
        rank.close(file)

    def _let_go(self, run: _Run) -> None:
        selector, self._selector = self._selector, None
        if selector is not None:
            selector.close()
        run.program.close()
        for rank in run.ranks:
            for file in list(rank.files):
                rank.close(file)
