"""What a training with a parameter server leaves behind: every update, and what was lost."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from labkit import plain
from labkit.kinds import Kind, rate_text, seconds_text

__all__ = ["Served", "Update"]


@plain.stored
@dataclass(frozen=True)
class Update:
    """One step: a worker fetched the weights, computed a gradient, and the server applied it.

    Seconds count from the moment when the chief handed out its first step.
    """

    step: int
    worker: int
    began: float
    ended: float
    read: int
    """How many updates the weights had seen when they were fetched."""
    written: int
    """The number of this update, in the order of their arrival."""
    loss: float

    @property
    def staleness(self) -> int:
        """How many updates of others came between fetching the weights and changing them."""
        return self.written - self.read - 1


@plain.stored
@dataclass(frozen=True, repr=False)
class Served:
    """A training with parameter servers, as it happened."""

    workers: int
    servers: int
    batch: int
    scheduled: int
    """Steps that the chief has handed out."""
    executed: int
    """Steps that workers have done, counted on the server by assign_add: each is counted."""
    descended: int
    """The same, counted by the kernel that applies gradients."""
    careless: int
    """The same, counted by reading, adding one and writing back: some are overwritten."""
    seconds: float
    updates: tuple[Update, ...]
    kind: Kind

    @property
    def lost(self) -> int:
        """Counts that another worker has overwritten between reading and writing."""
        return self.executed - self.careless

    @property
    def repeated(self) -> int:
        """Steps that were done again, because a worker was lost before it had reported them."""
        return self.executed - self.scheduled

    @property
    def by_worker(self) -> dict[int, int]:
        """How many of the steps each worker has done."""
        done = Counter(update.worker for update in self.updates)
        return {worker: done[worker] for worker in range(self.workers)}

    @property
    def staleness(self) -> dict[int, int]:
        """How many updates were how stale."""
        return dict(sorted(Counter(update.staleness for update in self.updates).items()))

    @property
    def mean_staleness(self) -> float:
        """How many updates of others a gradient missed, on average."""
        return sum(update.staleness for update in self.updates) / max(1, len(self.updates))

    def __repr__(self) -> str:
        shares = ", ".join(f"worker {n}: {count}" for n, count in self.by_worker.items())
        stale = ", ".join(
            f"{count} {'was' if count == 1 else 'were'} {n} behind"
            for n, count in self.staleness.items()
        )
        first, last = self.updates[: self._tail], self.updates[-self._tail :]
        return "\n".join(
            [
                f"{self.workers} workers, parameter servers: {self.servers}; "
                f"{self.scheduled} steps handed out, {self.executed} done ({shares}) in "
                f"{seconds_text(self.seconds)} ({rate_text(self._rate)})",
                f"loss {_mean(first):.3f} → {_mean(last):.3f} (means of {self._tail} updates)",
                f"updates: {stale}; {self.mean_staleness:.2f} on average",
                f"counted on the server: {self.executed} by assign_add, {self.descended} by the "
                f"gradient kernel, {self.careless} by read-then-write ({self.lost} lost)",
                str(self.kind),
            ]
        )

    @property
    def _tail(self) -> int:
        return max(1, min(20, len(self.updates) // 5))

    @property
    def _rate(self) -> float:
        return self.executed * self.batch / self.seconds


def _mean(updates: tuple[Update, ...]) -> float:
    return sum(update.loss for update in updates) / max(1, len(updates))
