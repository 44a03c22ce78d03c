"""What an engine is: the one that starts ranks as processes, here or elsewhere, and tells of them.

An engine knows nothing of deadlines, sentences or printing: that is written once, in `going`. It
starts what a `Job` describes, says what happens as events, and ends all of it when asked.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

__all__ = [
    "Ended",
    "Engine",
    "Event",
    "Job",
    "Output",
    "Places",
    "Raised",
    "Ready",
    "Returned",
    "Said",
    "Signal",
    "Stack",
    "Stream",
]

Stream = Literal["out", "err"]
Signal = Literal["kill", "pause", "resume"]


@dataclass(frozen=True)
class Places:
    """Where the ranks of the next run will be."""

    addresses: tuple[str, ...]
    """An address for each rank, as "127.0.0.1:20001": nobody else listens there."""
    master: str
    """One more, on the host of rank 0, for programs that meet at MASTER_ADDR and MASTER_PORT."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """The host of each rank."""
        return tuple(address.rpartition(":")[0] for address in self.addresses)


@dataclass(frozen=True)
class Job:
    """A run, as an engine needs to know it."""

    program: bytes
    """What `shipping.pack_program` packed; `labkit.cluster.rank.run_program` runs it."""
    ranks: int
    environment: tuple[Mapping[str, str], ...]
    """The whole environment of each rank: nothing of the engine's own shall be added."""
    deadline: float
    """Seconds from the first step to the last, for engines whose ranks have a watchdog."""
    start: float = 60.0
    """Seconds in which every rank must be ready."""
    preload: tuple[str, ...] = ()
    """Modules that the program will need, for engines that keep a process warm."""
    addresses: tuple[str, ...] = ()
    """Those of `Places`: on this machine a rank keeps its own until its program takes it."""


@dataclass(frozen=True)
class Ready:
    """The rank is there and waits for the others. No rank begins before all are ready."""

    rank: int
    pid: int
    host: str


@dataclass(frozen=True)
class Output:
    """Bytes that the rank wrote to stdout or stderr; lines may be cut anywhere."""

    rank: int
    stream: Stream
    data: bytes


@dataclass(frozen=True)
class Returned:
    """The program has returned on this rank; the payload is for `rank.result_of`.

    The process stays until the run is over, so that no other rank loses a peer.
    """

    rank: int
    payload: bytes | memoryview


@dataclass(frozen=True)
class Raised:
    """The program has raised on this rank; the payload is for `failures`. The process ends."""

    rank: int
    payload: bytes | memoryview


@dataclass(frozen=True)
class Ended:
    """The process is gone, after all else it said. `code` as in subprocess: -9 is SIGKILL."""

    rank: int
    code: int
    reason: str = ""
    """A sentence, where the engine knows more than the code: "Slurm cancelled the job"."""


@dataclass(frozen=True)
class Stack:
    """A piece of what faulthandler wrote when asked (or when the process crashed)."""

    rank: int
    text: str
    stopped: bool = False
    """The process is stopped (SIGSTOP): there will be no text before it goes on."""


@dataclass(frozen=True)
class Said:
    """A line of the engine itself, to be shown: "Job 123 is waiting for resources"."""

    text: str


Event = Ready | Output | Returned | Raised | Ended | Stack | Said


class Engine(Protocol):
    """N processes, somewhere. Every call is bounded; none leaves anything running after `close`.

    `open`, then as often as wanted `places`, `start`, `events` until the end, `stop`; then `close`.
    `stop` and `close` may come at any time, twice, or after an interrupt amid anything.
    """

    name: str

    def open(self, ranks: int, deadline: float) -> None:
        """Get what all runs need (a warm process, an allocation), within `deadline` seconds."""

    def places(self) -> Places:
        """The addresses of the next run. Ports are chosen anew where others could take them."""

    def start(self, job: Job) -> None:
        """Start the processes; what happens comes as events. Raises LabError where it cannot."""

    def events(self, timeout: float) -> list[Event]:
        """What has happened, after waiting `timeout` seconds at most for something to happen.

        All ranks have said Ready before any of them begins: the engine lets them go by itself.
        Ended is the last event of a rank.
        """

    def ask_stacks(self, ranks: Collection[int]) -> None:
        """Ask these ranks where they are; the answers come as Stack events, or never."""

    def signal(self, rank: int, what: Signal) -> None:
        """Kill, stop or continue one rank; nothing, when it is gone."""

    def stop(self) -> None:
        """End the run: every process of it is gone when this returns (bounded). Idempotent."""

    def close(self) -> None:
        """Give back what `open` got. Idempotent."""

    def describe(self) -> str:
        """Where the ranks run, in words: "on this machine, in a network of their own"."""
