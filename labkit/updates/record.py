"""What happened to the weights: every gradient, who computed it from which version, and when.

Versions of the weights are numbered: 0 is the beginning, and each update makes the next one.
A gradient is stale by as many updates as were made between reading and writing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from labkit import plain
from labkit.kinds import Kind, count_text, percent_text, rate_text, seconds_text

if TYPE_CHECKING:
    from labkit.views.figure import Picture

__all__ = ["MODES", "Gradient", "Loss", "Updates"]

MODES = {
    "sync": "synchronous",
    "async": "asynchronous",
    "bounded": "bounded staleness",
}


@plain.stored
@dataclass(frozen=True)
class Gradient:
    """One gradient of one worker, from asking for weights to the update that it became.

    All times are seconds from the beginning, in the order in which they pass.
    """

    worker: int
    read: int
    """The version of the weights that it was computed from."""
    written: int | None
    """The version that it made or helped to make; None if it came too late and was dropped."""
    asked: float
    allowed: float
    """The weights leave the server: later than `asked` only where a bound holds the worker back."""
    began: float
    ended: float
    arrived: float
    """The gradient is at the server."""
    ready: float
    """All others that it has to wait for are there too."""
    applied: float

    @property
    def staleness(self) -> int | None:
        """Updates between reading and writing; None for a gradient that was dropped."""
        return None if self.written is None else self.written - 1 - self.read

    @property
    def computing(self) -> float:
        """Seconds of work on the gradient."""
        return self.ended - self.began

    @property
    def waiting(self) -> float:
        """Seconds that the worker stood still for others."""
        return (self.allowed - self.asked) + (self.ready - self.arrived)


@plain.stored
@dataclass(frozen=True)
class Loss:
    """The loss of one version of the weights, on all the data of the problem."""

    version: int
    seconds: float
    loss: float


@plain.stored
@dataclass(frozen=True)
class Updates:
    """A whole training: its gradients in the order in which the server dealt with them."""

    mode: str
    workers: int
    problem: str
    learning_rate: float
    bound: int | None
    backups: int
    gradients: tuple[Gradient, ...]
    losses: tuple[Loss, ...]
    kind: Kind
    _weights: Any = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """How it trained, in words.

        >>> from labkit.updates import simulate
        >>> simulate(workers=2, mode="bounded", bound=3).name
        'bounded staleness (3)'
        """
        words = MODES[self.mode]
        if self.bound is not None:
            words += f" ({self.bound})"
        if self.backups:
            words += f", {self.backups} {'backup' if self.backups == 1 else 'backups'}"
        return words

    @cached_property
    def updates(self) -> int:
        """How often the weights were changed."""
        return max((g.written or 0 for g in self.gradients), default=0)

    @cached_property
    def used(self) -> tuple[Gradient, ...]:
        """The gradients that became part of an update."""
        return tuple(g for g in self.gradients if g.written is not None)

    @property
    def dropped(self) -> int:
        """Gradients that came too late for their round."""
        return len(self.gradients) - len(self.used)

    @cached_property
    def seconds(self) -> float:
        """From the beginning to the last update."""
        return max((g.applied for g in self.used), default=0.0)

    @property
    def updates_per_second(self) -> float:
        """How fast versions follow one another."""
        return self.updates / self.seconds if self.seconds else float("nan")

    @property
    def gradients_per_second(self) -> float:
        """How much work goes into the weights in a second."""
        return len(self.used) / self.seconds if self.seconds else float("nan")

    @cached_property
    def staleness(self) -> tuple[int, ...]:
        """The staleness of every gradient that was used."""
        return tuple(g.written - 1 - g.read for g in self.used if g.written is not None)

    @property
    def mean_staleness(self) -> float:
        """Over all gradients that were used."""
        return sum(self.staleness) / len(self.staleness) if self.staleness else float("nan")

    @property
    def max_staleness(self) -> int:
        """Of the gradient that came latest."""
        return max(self.staleness, default=0)

    def staleness_counts(self, worker: int | None = None) -> dict[int, int]:
        """How many gradients were stale by 0, 1, 2 ... updates; of one worker if asked."""
        chosen = [g for g in self.used if worker is None or g.worker == worker]
        counts = Counter(g.staleness for g in chosen if g.staleness is not None)
        return dict(sorted(counts.items()))

    def of(self, worker: int) -> tuple[Gradient, ...]:
        """The gradients of one worker, in order."""
        return tuple(g for g in self.gradients if g.worker == worker)

    @property
    def computing(self) -> float:
        """The share of the workers' time in which they computed."""
        return self._share(sum(g.computing for g in self.gradients))

    @property
    def waiting(self) -> float:
        """The share of the workers' time in which they stood still for others."""
        return self._share(sum(g.waiting for g in self.gradients))

    def _share(self, seconds: float) -> float:
        """Of the time until each worker's last gradient; what came after it is not recorded."""
        last = {g.worker: g.applied for g in self.gradients}
        whole = sum(last.values())
        return seconds / whole if whole else float("nan")

    def time_to(self, loss: float) -> float | None:
        """Seconds until the loss was this small for the first time; None if it never was."""
        loss = _target(loss)
        return next((one.seconds for one in self.losses if one.loss <= loss), None)

    def updates_to(self, loss: float) -> int | None:
        """Updates until the loss was this small for the first time; None if it never was."""
        loss = _target(loss)
        return next((one.version for one in self.losses if one.loss <= loss), None)

    def weights(self) -> Any:
        """The last version of the weights as one NumPy array.

        None without a problem, and in a record that was read from a file.
        """
        return self._weights

    def timeline(self, until: float | None = None) -> Picture:
        """A lane for each worker: when it computes, waits and talks to the server."""
        from labkit.updates.asked import number
        from labkit.views.updates_timeline import timeline

        return timeline(self, None if until is None else number("until", until, 0.2, above=True))

    def histogram(self) -> Picture:
        """How many gradients were stale by how many updates, worker by worker."""
        from labkit.views.updates_figure import histogram

        return histogram(self)

    def save(self, path: Any) -> None:
        """Write this record as JSON."""
        plain.write(path, self)

    def title(self) -> str:
        """How it trained what."""
        many = "1 worker" if self.workers == 1 else f"{self.workers} workers"
        on = f", {self.problem}" if self.problem else ""
        return f"{self.name[0].upper()}{self.name[1:]}, {many}{on}"

    def rows(self) -> list[tuple[str, str]]:
        """What a table says of it: a name and a value each."""
        rows = [
            ("updates", f"{count_text(self.updates)} in {seconds_text(self.seconds)}"),
            ("gradients used", _used(self)),
            ("updates a second", rate_text(self.updates_per_second, "updates")),
            ("staleness", f"mean {self.mean_staleness:.2f}, largest {self.max_staleness}"),
            ("workers compute", f"{percent_text(self.computing)} of their time"),
            ("workers wait", f"{percent_text(self.waiting)} of their time"),
        ]
        if self.losses:
            first, last = self.losses[0].loss, self.losses[-1].loss
            rows.append(("loss", f"from {first:.4g} to {last:.4g}"))
        return rows

    def __str__(self) -> str:
        lines = [f"{name:<17} {value}" for name, value in self.rows()]
        return "\n".join([self.title(), *lines, f"{self.kind}."])

    __repr__ = __str__

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from labkit.views.table import table

        return {
            "text/plain": str(self),
            "text/html": table((), self.rows(), caption=self.title(), footer=f"{self.kind}."),
        }


def _target(loss: float) -> float:
    from labkit.updates.asked import number

    return number("loss", loss, 0.1)


def _used(run: Updates) -> str:
    dropped = f"; {count_text(run.dropped)} came too late" if run.dropped else ""
    return f"{count_text(len(run.used))} of {count_text(len(run.gradients))}{dropped}"
