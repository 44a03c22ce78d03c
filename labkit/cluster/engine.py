"""What an engine does: it starts a run's ranks as processes, here or elsewhere, and reports events.

An engine knows nothing of time limits, sentences or printing: `run` does that, for all engines.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Stream = Literal["out", "err"]
Signal = Literal["kill", "pause"]
What = Literal["started", "out", "err", "stack", "paused", "returned", "raised", "ended"]


@dataclass(frozen=True)
class Event:
    """What a rank has done; the meaning of `value` depends on `what`.

    started    its pid: it has loaded its program, and waits until all ranks have
    out, err   bytes that it wrote; a line may be cut anywhere
    stack      a piece of what faulthandler wrote, when asked or when the process crashed
    paused     None: asked for its stack, but stopped (SIGSTOP)
    returned   the packed result; the process stays until the run is over, for its peers
    raised     the packed report of its exception; the process ends
    ended      the exit code as in subprocess (-9 is SIGKILL): the last event of a rank
    """

    rank: int
    what: What
    value: Any = None
    reason: str = ""
    """Of `ended`, where the engine knows more than the code: "Slurm cancelled the job"."""


@dataclass(frozen=True)
class Addresses:
    """Where the ranks of a run may listen."""

    ranks: tuple[str, ...]
    """One of each rank, as "127.0.0.1:20001"."""
    master: str
    """One more on the host of rank 0: MASTER_ADDR and MASTER_PORT."""


@dataclass(frozen=True)
class Job:
    """A run, as an engine needs to know it."""

    program: bytes
    """From `shipping.pack_program`; `in_rank.run` runs it."""
    environment: tuple[Mapping[str, str | None], ...]
    """For each rank, the variables that differ from this process's; None removes one."""
    modules: tuple[str, ...]
    """What to import before a rank reports that it has started."""
    addresses: tuple[str, ...]


class Engine(Protocol):
    """N processes, somewhere. Every call is bounded; nothing is left running after `close`.

    `open`, then for each run `addresses`, `start`, `events` until the end, `stop`; then `close`.
    `stop` and `close` may come at any time, twice, or after an interrupt amid anything.
    """

    name: str
    private_network: bool

    def open(self, ranks: int, start: float, environment: Mapping[str, str | None]) -> None:
        """Get what all runs need (a warm process, an allocation), within `start` seconds."""

    def addresses(self) -> Addresses:
        """The addresses of the next run."""

    def start(self, job: Job) -> None:
        """Start the processes; when all have started, the engine lets them begin by itself."""

    def events(self, timeout: float) -> list[Event]:
        """What has happened, after waiting at most `timeout` seconds for something to happen."""

    def ask_stacks(self, ranks: Collection[int]) -> None:
        """Ask these ranks where they are; the answers come as events, or never."""

    def signal(self, rank: int, what: Signal) -> None:
        """Kill or pause one rank; nothing, when it is gone."""

    def stop(self) -> None:
        """End the run: all its processes are gone when this returns."""

    def close(self) -> None:
        """Give back what `open` got."""

    def describe(self) -> str:
        """Where the ranks run, in words: "on this machine, in a private network"."""
