"""The record of a training run: every gradient, when, and from which version of the weights.

Versions are numbered: 0 is the start, and each update makes the next one. The staleness of a
gradient is the number of updates between its pull and its own update.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from labkit.arguments import number
from labkit.kinds import Kind, count_text, counted, percent_text, rate_text, seconds_text
from labkit.shown import ShownAsTable
from labkit.updates.comparison import Comparison, compared
from labkit.updates.settings import MODES, Settings

if TYPE_CHECKING:
    from labkit.views.figure import Picture
    from labkit.views.table import Table


@dataclass(frozen=True)
class Gradient:
    """One gradient of one worker; times in seconds from the start, in the order of the fields."""

    worker: int
    read: int
    """The version of the weights that it was computed from."""
    written: int | None
    """The version that it made or helped to make; None if it came too late and was dropped."""
    requested: float
    pulled: float
    """The weights leave the server: later than `requested` where the worker has to wait."""
    began: float
    ended: float
    arrived: float
    """The gradient is at the server."""
    ready: float
    """All other gradients of its update are there, too."""
    applied: float

    @property
    def staleness(self) -> int | None:
        """Updates between reading and writing, or None for a gradient that was dropped."""
        return None if self.written is None else self.written - 1 - self.read

    @property
    def computing(self) -> float:
        """Seconds of computation."""
        return self.ended - self.began

    @property
    def waiting(self) -> float:
        """Seconds in which the worker waited for others."""
        return (self.pulled - self.requested) + (self.ready - self.arrived)


@dataclass(frozen=True)
class Loss:
    """The loss of one version of the weights, on all data of the problem."""

    version: int
    seconds: float
    loss: float


@dataclass(frozen=True, repr=False)
class Updates(ShownAsTable):
    """A training run: its gradients in the order in which the server took them."""

    settings: Settings
    problem: str
    gradients: tuple[Gradient, ...]
    losses: tuple[Loss, ...]
    kind: Kind
    weights: Any = field(default=None, compare=False)
    """The last version as one NumPy array; None without a problem."""

    @property
    def workers(self) -> int:
        """The number of workers."""
        return self.settings.workers

    @property
    def name(self) -> str:
        """The mode in words, such as "stale synchronous parallel (bound 3)"."""
        bound, backups = self.settings.bound, self.settings.backups
        words = MODES[self.settings.mode]
        words += "" if bound is None else f" (bound {bound})"
        return words + (f", {counted(backups, 'backup')}" if backups else "")

    @property
    def title(self) -> str:
        """Mode, number of workers and problem."""
        problem = f", {self.problem}" if self.problem else ""
        return f"{self.name[0].upper()}{self.name[1:]}, {counted(self.workers, 'worker')}{problem}"

    @cached_property
    def updates(self) -> int:
        """How many versions were made."""
        return max(g.written for g in self.used if g.written is not None)

    @cached_property
    def used(self) -> tuple[Gradient, ...]:
        """The gradients that became part of an update."""
        return tuple(g for g in self.gradients if g.written is not None)

    @property
    def dropped(self) -> int:
        """How many gradients came too late for their update."""
        return len(self.gradients) - len(self.used)

    @cached_property
    def seconds(self) -> float:
        """From the start to the last update."""
        return max(g.applied for g in self.used)

    @property
    def updates_per_second(self) -> float:
        """How fast versions follow one another."""
        return self.updates / self.seconds

    @property
    def gradients_per_second(self) -> float:
        """The throughput: how many gradients are used in a second."""
        return len(self.used) / self.seconds

    @cached_property
    def staleness(self) -> tuple[int, ...]:
        """The staleness of every gradient that was used."""
        return tuple(g.staleness for g in self.used if g.staleness is not None)

    @property
    def mean_staleness(self) -> float:
        """The mean staleness of all gradients that were used."""
        return sum(self.staleness) / len(self.staleness)

    @property
    def max_staleness(self) -> int:
        """The largest staleness."""
        return max(self.staleness)

    def staleness_counts(self, worker: int | None = None) -> dict[int, int]:
        """Returns how many gradients of this worker, or of all, had a staleness of 0, 1, 2 …"""
        found = (g.staleness for g in self.used if worker in (None, g.worker))
        return dict(sorted(Counter(stale for stale in found if stale is not None).items()))

    def of(self, worker: int) -> tuple[Gradient, ...]:
        """Returns the gradients of one worker, in order."""
        return tuple(g for g in self.gradients if g.worker == worker)

    @property
    def computing(self) -> float:
        """The share of the workers' time in which they computed."""
        return sum(g.computing for g in self.gradients) / self._workers_seconds

    @property
    def waiting(self) -> float:
        """The share of the workers' time in which they waited for others."""
        return sum(g.waiting for g in self.gradients) / self._workers_seconds

    @property
    def _workers_seconds(self) -> float:
        """The sum of the workers' seconds, each until its last recorded gradient."""
        return sum({g.worker: g.applied for g in self.gradients}.values())

    def reached(self, loss: float) -> Loss | None:
        """Returns the first version whose loss was this small, or None."""
        return next((one for one in self.losses if one.loss <= loss), None)

    def time_to(self, loss: float) -> float | None:
        """Returns the seconds until the loss was this small for the first time, or None."""
        first = self.reached(number("loss", loss, at_least=0))
        return None if first is None else first.seconds

    def beside(self, *others: Updates, target: float | None = None) -> Comparison:
        """Returns this run and others on the same problem as a table and a picture.

        >>> simulate(bowl, mode="sync").beside(simulate(bowl, mode="async"))   # doctest: +SKIP

        Without a target it is the smallest loss that every run has reached.
        """
        return compared((self, *others), target)

    def picture(self, until: float | None = None) -> Picture:
        """Returns a picture with a lane for each worker: when it computes, waits, communicates."""
        from labkit.updates.page.pictures import timeline

        return timeline(self, None if until is None else number("until", until, above=0))

    def histogram(self) -> Picture:
        """Returns how many gradients had which staleness, worker by worker."""
        from labkit.updates.page.pictures import histogram

        return histogram(self)

    def table(self) -> Table:
        """Returns a table of updates, throughput, staleness, and what workers do."""
        from labkit.views.table import Table

        used = f"{count_text(len(self.used))} of {count_text(len(self.gradients))}"
        dropped = f"; {count_text(self.dropped)} came too late" if self.dropped else ""
        rows = [
            ("updates", f"{count_text(self.updates)} in {seconds_text(self.seconds)}"),
            ("gradients used", used + dropped),
            ("throughput", rate_text(self.updates_per_second, "updates")),
            ("staleness", f"mean {self.mean_staleness:.2f}, largest {self.max_staleness}"),
            ("workers compute", f"{percent_text(self.computing)} of their time"),
            ("workers wait", f"{percent_text(self.waiting)} of their time"),
        ]
        if self.losses:
            first, last = self.losses[0].loss, self.losses[-1].loss
            rows.append(("loss", f"from {first:.4g} to {last:.4g}"))
        return Table((), rows, self.title, f"{self.kind}.")
