"""The ranks of a fault drill, what is done to them, and what they say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from labkit.cluster import Cluster, Outcome, RunHandle
from labkit.kinds import measured
from labkit.strategies.drilled import Drill, Moment
from labkit.strategies.parameter_server import ENVIRONMENT, PRELOAD

__all__ = ["STRATEGIES", "Scene"]

STRATEGIES = {"multi_worker": "MultiWorkerMirrored", "parameter_server": "ParameterServer"}


@dataclass
class Scene:
    """The ranks of a drill, and what has happened to them."""

    strategy: str
    workers: int
    patience: float
    deadline: float
    moments: list[Moment] = field(default_factory=list)
    at: float = 0.0
    hurt: str = ""
    """Who was hit."""

    @property
    def names(self) -> list[str]:
        """What each rank is called."""
        those = [f"worker {number}" for number in range(self.workers)]
        return those if self.strategy == "multi_worker" else ["chief", *those, "server"]

    @property
    def victim(self) -> int:
        """The last worker."""
        return self.names.index(f"worker {self.workers - 1}")

    def ranks(self) -> Cluster:
        """The processes of one run."""
        roles = {"worker": self.workers}
        if self.strategy == "parameter_server":
            roles = {"chief": 1, **roles, "ps": 1}
        return Cluster(roles=roles, environment=ENVIRONMENT, preload=PRELOAD)

    def start(
        self, ranks: Cluster, program: Callable[..., Any], *arguments: Any, without: int = -1
    ) -> RunHandle:
        """Start a run in which every rank may fail: none is stopped because of another.

        It is over when all have returned or given up, but for the one that a fault will silence.
        """
        # Parameter servers and their workers never return.
        served = self.strategy == "parameter_server"
        until = {0} if served else set(range(self.workers)) - {without}
        everyone = range(len(self.names))
        return ranks.start(program, *arguments, until=until, tolerate=everyone, show=False)

    def hit(self, going: RunHandle, how: str, rank: int) -> None:
        """Do it, and note when."""
        self.at, self.hurt = going.seconds, self.names[rank]
        if how == "kill":
            self.note(self.at, rank, "is killed (SIGKILL)")
            going.kill(rank)
        else:
            self.note(self.at, rank, "is stopped where it is (SIGSTOP)")
            going.pause(rank)

    def note(self, seconds: float, rank: int, what: str) -> None:
        """One more line of the timeline."""
        self.moments.append(Moment(seconds, self.names[rank], what))

    def heard(self, outcome: Outcome) -> float | None:
        """Note what the ranks wrote; how long after the fault the first of them complained."""
        steps = [line for line in outcome.lines if line.text.endswith(" done")]
        for line in [*steps[:1], *steps[-1:]]:
            self.note(line.seconds, line.rank, line.text)
        faults = {
            line.rank: (line.seconds, line.text)
            for line in outcome.lines
            if line.text.startswith("gives up: ")
        }
        for rank, error in outcome.errors.items():
            # Some ends leave no time for words: a crash in a library, or our own deadline.
            if self.names[rank] != self.hurt and error.what != "stopped":
                faults.setdefault(rank, (error.seconds, error.text))
        for rank, (seconds, text) in faults.items():
            self.note(seconds, rank, text)
        return min(faults.values())[0] - self.at if faults else None

    def ended(
        self, fault: str, noticed: float | None, went_on: bool, result: str, **numbers: float
    ) -> Drill:
        """The record."""
        return Drill(
            fault=fault,
            strategy=STRATEGIES[self.strategy],
            victim=self.hurt or self.names[self.victim],
            at=self.at,
            noticed=noticed,
            went_on=went_on,
            result=result,
            numbers=numbers,
            timeline=tuple(sorted(dict.fromkeys(self.moments), key=lambda moment: moment.seconds)),
            kind=measured(f"{len(self.names)} processes of this machine"),
        )
