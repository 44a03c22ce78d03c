"""The engine protocol: start the ranks of a run as processes, here or elsewhere, and report events.

An engine knows nothing of time limits, sentences or printing: `handle` does that for all engines.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Stream = Literal["out", "err"]
Signal = Literal["kill", "pause"]
What = Literal["started", "out", "err", "stack", "paused", "returned", "raised", "ended"]


@dataclass(frozen=True)
class Event:
    """What a rank has done. The meaning of `value` depends on `what`.

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
    """The address of each rank, such as "127.0.0.1:20001"."""
    master: str
    """A further address on the host of rank 0, for MASTER_ADDR and MASTER_PORT."""


@dataclass(frozen=True)
class RunSpec:
    """What an engine must know to start a run."""

    program: bytes
    """The program as `shipping.pack_program` packed it, for `in_rank.run`."""
    environment: tuple[Mapping[str, str | None], ...]
    """The variables of each rank that differ from this process's. None removes a variable."""
    modules: tuple[str, ...]
    """What to import before a rank reports that it has started."""
    addresses: tuple[str, ...]


class Engine(Protocol):
    """N processes, somewhere. Every call returns in bounded time, and `close` leaves none running.

    The order of calls is `open`, then `addresses`, `start`, `events` and `stop` for each run, then
    `close`. `stop` and `close` may be called at any time, also twice, and also after Ctrl-C has
    interrupted another call.
    """

    name: str
    private_network: bool

    def open(self, ranks: int, start: float, environment: Mapping[str, str | None]) -> None:
        """Get what all runs need (a warm process, an allocation), within `start` seconds."""

    def addresses(self) -> Addresses:
        """Returns the addresses of the next run."""

    def start(self, spec: RunSpec) -> None:
        """Start the processes. Once all have started, the engine lets them begin."""

    def events(self, timeout: float) -> list[Event]:
        """Returns what has happened. It waits at most `timeout` seconds for something to happen."""

    def ask_stacks(self, ranks: Collection[int]) -> None:
        """Ask these ranks for their stacks. The answers come as events, or never."""

    def signal(self, rank: int, what: Signal) -> None:
        """Kill or pause a rank. A rank that has ended is left alone."""

    def stop(self) -> None:
        """End the run: all its processes are gone when this returns."""

    def close(self) -> None:
        """Give back what `open` got."""

    def describe(self) -> str:
        """Returns where the ranks run, such as "on this machine, in a private network"."""
