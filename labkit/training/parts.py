"""What a breakdown found, as plain data: the parts of a step, and why replicas gained or lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from labkit import plain
from labkit.kinds import Kind, ratio_text, seconds_text

__all__ = ["Breakdown", "Part", "Step"]

CONFIDENCE = 0.95


@plain.stored
@dataclass(frozen=True)
class Part:
    """Seconds of a step that one part takes, with the interval of the measurement."""

    name: str
    seconds: float
    low: float
    high: float

    @property
    def measurable(self) -> bool:
        """Whether the interval keeps clear of zero."""
        return self.low > 0 or self.high < 0

    def __str__(self) -> str:
        if self.low == self.high == 0:
            return "none"
        if not self.measurable:
            return f"too small to tell (below {seconds_text(max(-self.low, self.high))})"
        return (
            f"{seconds_text(self.seconds)} ({seconds_text(self.low)} to {seconds_text(self.high)})"
        )


@plain.stored
@dataclass(frozen=True)
class Step:
    """One step of a job: how many images on how many replicas, and its parts."""

    replicas: int
    global_batch: int
    parts: tuple[Part, ...]

    @property
    def who(self) -> str:
        """Who does the step."""
        return "one device" if self.replicas == 1 else f"{self.replicas} replicas"

    def part(self, name: str) -> Part:
        """A part by its name."""
        return next(part for part in self.parts if part.name == name)

    def per_image(self, name: str) -> float:
        """Seconds of a part, shared among the images of the global batch."""
        return self.part(name).seconds / self.global_batch

    @property
    def in_loop(self) -> float:
        """Seconds per image with the steps in one call, that is without the host's dispatch."""
        return sum(p.seconds for p in self.parts if p.name != "host dispatch") / self.global_batch


@plain.stored
@dataclass(frozen=True)
class Breakdown:
    """The parts of a step on one device and on replicas, and what follows from them."""

    title: str
    alone: Step
    together: Step
    faster: float
    low: float
    high: float
    kind: Kind

    @property
    def reason(self) -> str:
        """Why the replicas gained or lost, in a sentence."""
        return _reason(self)

    def rows(self) -> list[tuple[str, ...]]:
        """Part by part: a step on one device, on the replicas, and both per 1000 images."""
        rows = []
        for part in self.alone.parts:
            other = self.together.part(part.name)
            rows.append(
                (
                    part.name,
                    str(part),
                    str(other),
                    *(
                        seconds_text(1000 * step.per_image(part.name))
                        if step.part(part.name).measurable
                        else "–"
                        for step in (self.alone, self.together)
                    ),
                )
            )
        return rows

    def head(self) -> tuple[str, ...]:
        """Column heads that name the batch of each step."""
        a, b = self.alone, self.together
        return (
            "part",
            f"{a.who}, step of {a.global_batch}",
            f"{b.who}, step of {b.global_batch}",
            f"{a.who}, 1000 images",
            f"{b.who}, 1000 images",
        )

    def plot(self) -> Any:
        """The parts as stacked bars, per 1000 images."""
        from labkit.views.training_figure import parts_of_a_step

        return parts_of_a_step(self)

    def __str__(self) -> str:
        lines = [self.title, " | ".join(self.head()), *(" | ".join(row) for row in self.rows())]
        return "\n".join([*lines, self.reason, f"{self.kind}; intervals of {CONFIDENCE:.0%}"])

    __repr__ = __str__

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from labkit.views.table import table

        footer = f"{self.reason} {self.kind}; intervals of {CONFIDENCE:.0%}."
        html = table(self.head(), self.rows(), caption=self.title, footer=footer)
        return {"text/plain": str(self), "text/html": html}


def _reason(found: Breakdown) -> str:
    many = found.together
    span = f"{ratio_text(found.faster)} ({ratio_text(found.low)} to {ratio_text(found.high)})"
    if found.low > 1:
        verdict = f"{many.who} gained: {span} the images a second of one device"
    elif found.high < 1:
        verdict = f"{many.who} lost: {span} the images a second of one device"
    else:
        verdict = f"{many.who} neither gained nor lost for certain: {span} the images a second"
    parts = [_computing(found)]
    for name, verb in (
        ("gradient reduction", "summing the gradients cost"),
        ("input", "input took"),
    ):
        before, after = found.alone.part(name), many.part(name)
        more = 1000 * (many.per_image(name) - found.alone.per_image(name))
        if not (before.measurable or after.measurable):
            parts.append(f"{verb} too little to measure")
        elif name == "input":
            parts.append(f"{verb} {seconds_text(abs(more))} {'more' if more > 0 else 'less'}")
        else:
            parts.append(f"{verb} {seconds_text(more)}")
    return f"{verdict}. For every 1000 images, {'; '.join(parts)}."


def _computing(found: Breakdown) -> str:
    """What became of the computation when it was shared, if its intervals can tell."""
    one, many = found.alone.part("compute"), found.together.part("compute")
    here, there = found.alone.global_batch, found.together.global_batch
    saved = 1000 * (one.seconds / here - many.seconds / there)
    if one.low / here < many.high / there and many.low / there < one.high / here:
        return "the computing took about as long as on one device"
    if saved > 0:
        return f"sharing the computation saved {seconds_text(saved)}"
    smaller = there // found.together.replicas < here
    why = "smaller slices use a device badly" if smaller else "the replicas share memory and caches"
    return f"computing took {seconds_text(-saved)} longer, for {why}"
