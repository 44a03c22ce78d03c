"""A run whose ranks are known by their folder only: what is written there becomes events.

It is the asker's side of `remote`, the same for every launcher.
"""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from labkit.cluster.engine import Ended, Event, Output, Raised, Ready, Returned, Stack
from labkit.cluster.folder import RunFolder
from labkit.cluster.remote import Task
from labkit.cluster.watcher import IN_PEACE

__all__ = ["FolderRun"]

PIECE = 1 << 20  # bytes of output in one event
LOOK = 0.02


@dataclass
class _Log:
    """A file that grows, and how much of it is read."""

    path: Path
    read: int = 0

    def more(self) -> bytes:
        # Opened anew each time: that is when a network file system asks for what is new.
        try:
            with self.path.open("rb") as file:
                file.seek(self.read)
                data = file.read(PIECE)
        except FileNotFoundError:
            return b""
        self.read += len(data)
        return data


@dataclass
class _Rank:
    """What is known of one rank."""

    out: _Log
    err: _Log
    stack: _Log
    seen: set[str] = field(default_factory=set)

    @property
    def is_over(self) -> bool:
        return "ended" in self.seen


class FolderRun:
    """One run, from its task in the folder to the last rank's end."""

    def __init__(self, folder: RunFolder, ranks: int) -> None:
        self.folder = folder
        self.steps: set[str] = set()
        """The steps of a Slurm job that the ranks belong to."""
        self._ranks = [
            _Rank(
                _Log(folder.path / f"out{rank}"),
                _Log(folder.path / f"err{rank}"),
                _Log(folder.path / f"stack{rank}"),
            )
            for rank in range(ranks)
        ]
        self._requests = 0

    def describe(self, task: Task) -> None:
        """Write down what the ranks are to do."""
        self.folder.write("job", pickle.dumps(task))

    @property
    def has_returned(self) -> bool:
        """Whether every rank has, so that all may take their leave in peace."""
        return all("returned" in rank.seen for rank in self._ranks)

    @property
    def is_over(self) -> bool:
        """Whether every rank has ended."""
        return all(rank.is_over for rank in self._ranks)

    def wait(self, seconds: float, command_ended: Collection[int] = ()) -> list[Event]:
        """What has happened, at once if something has."""
        until = time.monotonic() + seconds
        while True:
            events = self.look()
            if events or command_ended or time.monotonic() >= until:
                return events
            time.sleep(min(LOOK, max(0.0, until - time.monotonic())))

    def look(self) -> list[Event]:
        """What has happened since the last look."""
        # Names first: what a rank wrote before it ended is then in its files.
        names = self.folder.names()
        events: list[Event] = []
        for number, rank in enumerate(self._ranks):
            if not rank.is_over:
                events += self._events_of(number, rank, names)
        if "go" not in names and all("ready" in rank.seen for rank in self._ranks):
            self.folder.write("go")
        return events

    def give_up(self, codes: Mapping[int, int] | int, reason: str = "") -> list[Event]:
        """The launcher is gone: ranks that have not ended are, too."""
        events = self.look()
        while any(isinstance(event, Output) for event in events[-1:]):
            more = self.look()
            if not more:
                break
            events += more
        for number, rank in enumerate(self._ranks):
            if not rank.is_over:
                rank.seen.add("ended")
                code = codes if isinstance(codes, int) else codes.get(number, 1)
                events.append(Ended(number, code, reason))
        return events

    def request(self, what: str, ranks: Collection[int]) -> None:
        """Ask the watchers of these ranks for something."""
        self.folder.write(f"request{self._requests}", json.dumps([what, sorted(ranks)]).encode())
        self._requests += 1

    def end(self, seconds: float, is_gone: Callable[[], bool]) -> None:
        """Tell all watchers that it is over; wait until they have ended, or their launcher has."""
        until = time.monotonic() + seconds
        ended = {f"ended{number}" for number in range(len(self._ranks))}
        with suppress(OSError):  # a full disk, a folder that is gone: then the launcher ends them
            self.folder.write("over", IN_PEACE if self.has_returned else b"")
            while not (ended <= self.folder.names() or is_gone()) and time.monotonic() < until:
                time.sleep(LOOK)

    def _events_of(self, number: int, rank: _Rank, names: set[str]) -> list[Event]:
        events: list[Event] = []
        if f"ready{number}" in names and "ready" not in rank.seen:
            rank.seen.add("ready")
            about = json.loads(self.folder.read(f"ready{number}"))
            self.steps.add(about["step"])
            events.append(Ready(number, int(about["pid"]), str(about["host"])))
        streams: Sequence[tuple[Literal["out", "err"], _Log]] = (
            ("out", rank.out),
            ("err", rank.err),
        )
        full = False
        for stream, log in streams:
            if data := log.more():
                full = full or len(data) == PIECE
                events.append(Output(number, stream, data))
        if text := rank.stack.more():
            events.append(Stack(number, text.decode(errors="replace")))
        if f"stopped{number}" in names and "stopped" not in rank.seen:
            rank.seen.add("stopped")
            events.append(Stack(number, "", stopped=True))
        if full:
            return events  # the rest of its output first
        for how, event in (("returned", Returned), ("raised", Raised)):
            if f"{how}{number}" in names and how not in rank.seen:
                rank.seen.add(how)
                events.append(event(number, self.folder.read(f"{how}{number}")))
        if f"ended{number}" in names:
            rank.seen.add("ended")
            events.append(Ended(number, int(json.loads(self.folder.read(f"ended{number}")))))
        return events
