"""What an engine does: it starts a run's ranks as processes, here or elsewhere, and reports events.

An engine knows nothing of time limits, sentences or printing: `run` does that, for all engines.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

__all__ = [
    "Addresses",
    "Ended",
    "Engine",
    "Event",
    "Job",
    "Raised",
    "Returned",
    "Signal",
    "Stack",
    "Started",
    "Stream",
    "Wrote",
]

Stream = Literal["out", "err"]
Signal = Literal["kill", "pause", "resume"]


@dataclass(frozen=True)
class Addresses:
    """Where the ranks of the next run may listen."""

    ranks: tuple[str, ...]
    """One of each rank, as "127.0.0.1:20001"."""
    master: str
    """One more on the host of rank 0: MASTER_ADDR and MASTER_PORT."""


@dataclass(frozen=True)
class Job:
    """A run, as an engine needs to know it."""

    program: bytes
    """From `shipping.pack_program`; `in_rank.run` runs it."""
    ranks: int
    environment: tuple[Mapping[str, str | None], ...]
    """For each rank, the variables that differ from this process's; None removes one."""
    modules: tuple[str, ...] = ()
    """What to import before a rank says that it has started."""
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True)
class Started:
    """The rank has loaded its program and waits. No rank begins before all have started."""

    rank: int
    pid: int
    host: str


@dataclass(frozen=True)
class Wrote:
    """Bytes that the rank wrote to stdout or stderr; a line may be cut anywhere."""

    rank: int
    stream: Stream
    data: bytes


@dataclass(frozen=True)
class Returned:
    """The program has returned; `in_rank.result_of` reads the payload.

    The process stays until the run is over, so that no other rank loses a peer.
    """

    rank: int
    payload: bytes


@dataclass(frozen=True)
class Raised:
    """The program has raised; `in_rank.report_of` reads the payload. The process ends."""

    rank: int
    payload: bytes


@dataclass(frozen=True)
class Ended:
    """The process is gone: the last event of a rank. `code` as in subprocess: -9 is SIGKILL."""

    rank: int
    code: int
    reason: str = ""
    """A sentence, where the engine knows more than the code: "Slurm cancelled the job"."""


@dataclass(frozen=True)
class Stack:
    """A piece of what faulthandler wrote when asked, or when the process crashed."""

    rank: int
    text: str
    paused: bool = False
    """The process is stopped (SIGSTOP): it cannot answer before it continues."""


Event = Started | Wrote | Returned | Raised | Ended | Stack


class Engine(Protocol):
    """N processes, somewhere. Every call is bounded; nothing is left running after `close`.

    `open`, then for each run `addresses`, `start`, `events` until the end, `stop`; then `close`.
    `stop` and `close` may come at any time, twice, or after an interrupt amid anything.
    """

    name: str

    def open(self, ranks: int, start: float) -> None:
        """Get what all runs need (a warm process, an allocation), within `start` seconds."""

    def addresses(self) -> Addresses:
        """The addresses of the next run. Ports are chosen anew where others could take them."""

    def start(self, job: Job) -> None:
        """Start the processes; what happens comes as events. Raises LabError where it cannot."""

    def events(self, timeout: float) -> list[Event]:
        """What has happened, after waiting at most `timeout` seconds for something to happen.

        When all ranks have started, the engine lets them begin by itself.
        """

    def ask_stacks(self, ranks: Collection[int]) -> None:
        """Ask these ranks where they are; the answers come as Stack events, or never."""

    def signal(self, rank: int, what: Signal) -> None:
        """Kill, pause or resume one rank; nothing, when it is gone."""

    def stop(self) -> None:
        """End the run: all its processes are gone when this returns. Idempotent."""

    def close(self) -> None:
        """Give back what `open` got. Idempotent."""

    def describe(self) -> str:
        """Where the ranks run, in words: "on this machine, in a private network"."""
