"""What a program does, in its order, as far as reading it tells: what the rules look at."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from labkit.training.defects.values import (
    Array,
    Clock,
    Function,
    Loss,
    Model,
    Number,
    Pipeline,
    Spot,
    Strategy,
)

__all__ = ["Fit", "GlobalBatch", "Region", "Story", "Traced", "Work"]


@dataclass(frozen=True)
class Region:
    """From one reading of a clock to another, or what a timer calls."""

    clock: str
    start: int
    end: int
    first: Spot
    last: Spot
    loops: int
    repeats: bool = False

    def holds(self, at: int) -> bool:
        return self.start <= at <= self.end


@dataclass(frozen=True)
class Fit:
    """A call of fit."""

    at: int
    spot: Spot
    model: Model
    cold: bool
    """The first training of this model that the program does."""
    batch: Number | None
    batch_spot: Spot
    shuffles: bool | None
    labels: bool | None
    """True for one-hot labels, False for integers."""
    loss: Loss | None
    validates: bool
    pipeline: Pipeline | None


@dataclass(frozen=True)
class Traced:
    """A call of a tf.function that has not been called before."""

    at: int
    spot: Spot
    function: Function


@dataclass(frozen=True)
class Work:
    """Something that is not training."""

    at: int
    spot: Spot
    kind: Literal["evaluation", "preparation"]


@dataclass(frozen=True)
class GlobalBatch:
    """A batch times the number of replicas."""

    at: int
    spot: Spot
    number: Number
    name: str


@dataclass
class Story:
    """All events of a program."""

    regions: list[Region] = field(default_factory=list)
    fits: list[Fit] = field(default_factory=list)
    traced: list[Traced] = field(default_factory=list)
    work: list[Work] = field(default_factory=list)
    clocks: list[Clock] = field(default_factory=list)
    strategies: list[Strategy] = field(default_factory=list)
    models: list[Model] = field(default_factory=list)
    pipelines: list[Pipeline] = field(default_factory=list)
    doubles: list[Array] = field(default_factory=list)
    global_batches: list[GlobalBatch] = field(default_factory=list)
    breaks: list[tuple[Spot, str]] = field(default_factory=list)
    own_loops: bool = False
    """Whether strategy.run is used: then the reader cannot know where a model trains."""
    text: str = ""

    def innermost(self, at: int) -> Region | None:
        """The tightest timed region around a moment."""
        around = [region for region in self.regions if region.holds(at)]
        return min(around, key=lambda region: region.end - region.start, default=None)

    def timed_fits(self) -> list[tuple[Region, Fit]]:
        """Each fit with the region that times it."""
        pairs: list[tuple[Any, Fit]] = [(self.innermost(fit.at), fit) for fit in self.fits]
        return [(region, fit) for region, fit in pairs if region is not None]
