"""Where the time of a step goes: the step with and without each of its parts, timed interleaved.

    host dispatch   every step called from Python, less the same steps in one call
    input           fresh images for every step, less the same images again and again
    reduction       gradients summed over the replicas, less every replica on its own
    compute         what is left: forward, backward, update

Each part is a difference within a round, so that a machine that drifts cannot fake one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from labkit import plain
from labkit.hardware.tensorflow import import_tensorflow
from labkit.kinds import Kind, LabError, ratio_text, seconds_text
from labkit.training.pipeline import order_of

if TYPE_CHECKING:
    from labkit.timing import Comparison
    from labkit.training.job import Job

__all__ = ["Breakdown", "Part", "Step", "breakdown"]

CONFIDENCE = 0.95
CALL_SECONDS = 0.08  # of one timed call: long against the clock, short against a lesson


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


def breakdown(job: Job, *, rounds: int = 15, deadline: float = 120.0) -> Breakdown:
    """Time a job's step with and without each part, beside the same job on one device.

    >>> breakdown(Job("dense", data, replicas=labkit.replicas(2))).reason  # doctest: +SKIP

    The job's weights are as before afterwards.
    """
    from labkit.timing import compare

    if job.replicas.count == 1:
        raise LabError(
            "This job has one replica: there is nothing to compare it with. "
            "Take a job with replicas=labkit.replicas(2)."
        )
    if rounds < 6:
        raise LabError(f"{rounds} rounds give no interval; take 6 or more.")
    alone = job.on(_first_of(job.replicas))
    with _restored(job), _restored(alone):
        works = {**_variants(alone, "alone"), **_variants(job, "together")}
        steps = {name: count for name, (_, count) in works.items()}
        timed = compare(
            {name: work for name, (work, _) in works.items()},
            rounds=rounds,
            deadline=deadline,
            items=dict(steps),
            confidence=CONFIDENCE,
            warmup=4,
            unit="steps",
            seed=0,
        )
    if timed.rounds < 6:
        raise LabError(
            f"Only {timed.rounds} rounds were timed until the deadline ({deadline:g} s) or Ctrl-C. "
            "Give a longer deadline, or a smaller batch."
        )
    ratio = _ratio(timed, steps, alone, job)
    return Breakdown(
        title=f"Where a step goes: {job.model.name} model on {job.data.label}",
        alone=_step(alone, timed, steps, "alone"),
        together=_step(job, timed, steps, "together"),
        faster=ratio[0],
        low=ratio[1],
        high=ratio[2],
        kind=job.kind,
    )


def _first_of(replicas: Any) -> Any:
    from labkit.hardware import replicas as choose

    return choose(devices=[replicas.devices[0]])


def _variants(job: Job, name: str) -> dict[str, tuple[Callable[[], None], int]]:
    """The step whole and without a part: each as a call, with the steps that it takes."""
    tf = import_tensorflow()
    order = order_of(job.images, 0, job.seed)
    zero, one = tf.constant(0), tf.constant(1)

    def loop(advance: Any, steps: int) -> Callable[[], None]:
        count = tf.constant(steps)

        def run() -> None:
            advance(order, zero, count)
            job.wait()

        return run

    whole = job.advance
    steps = _calibrated(job, loop, whole)

    def dispatched() -> None:
        for number in range(steps):
            whole(order, tf.constant(number), one)
        job.wait()

    with job.strategy.scope():
        held = job.program(job.source.held())
    variants = {"whole": loop(whole, steps), "held": loop(held, steps), "called": dispatched}
    if job.replicas.count > 1:
        variants["apart"] = loop(job.program(job.source, reduce=False), steps)
    return {f"{name}, {variant}": (work, steps) for variant, work in variants.items()}


def _calibrated(job: Job, loop: Callable[[Any, int], Callable[[], None]], whole: Any) -> int:
    loop(whole, 1)()
    began = time.perf_counter()
    probe = min(8, job.steps_per_epoch)
    loop(whole, probe)()
    per_step = (time.perf_counter() - began) / probe
    return int(min(max(4, CALL_SECONDS / per_step), job.steps_per_epoch))


def _step(job: Job, timed: Comparison, steps: dict[str, int], name: str) -> Step:
    count = steps[f"{name}, whole"]

    def samples(variant: str) -> list[float]:
        return [seconds / count for seconds in timed.log.samples(f"{name}, {variant}")]

    whole, held, called = samples("whole"), samples("held"), samples("called")
    apart = samples("apart") if job.replicas.count > 1 else whole
    differences = {
        "compute": [h + a - w for w, h, a in zip(whole, held, apart, strict=True)],
        "input": [w - h for w, h in zip(whole, held, strict=True)],
        "gradient reduction": [w - a for w, a in zip(whole, apart, strict=True)],
        "host dispatch": [c - w for c, w in zip(called, whole, strict=True)],
    }
    return Step(
        job.replicas.count,
        job.global_batch,
        tuple(_part(part, values) for part, values in differences.items()),
    )


def _part(name: str, values: list[float]) -> Part:
    from labkit.timing.intervals import shift

    found = shift(values, CONFIDENCE)
    return Part(name, float(found.value), float(found.low), float(found.high))


def _ratio(
    timed: Comparison, steps: dict[str, int], alone: Job, job: Job
) -> tuple[float, float, float]:
    """How many times as many images a second the replicas do, within the rounds."""
    import math

    from labkit.timing.intervals import shift

    scale = (steps["together, whole"] * job.global_batch) / (
        steps["alone, whole"] * alone.global_batch
    )
    pairs = zip(
        timed.log.samples("alone, whole"), timed.log.samples("together, whole"), strict=True
    )
    found = shift([math.log(scale * one / many) for one, many in pairs], CONFIDENCE)
    return math.exp(found.value), math.exp(found.low), math.exp(found.high)


def _reason(found: Breakdown) -> str:
    many = found.together
    span = f"{ratio_text(found.faster)} ({ratio_text(found.low)} to {ratio_text(found.high)})"
    if found.low > 1:
        verdict = f"{many.who} gained: {span} the images a second of one device"
    elif found.high < 1:
        verdict = f"{many.who} lost: {span} the images a second of one device"
    else:
        verdict = f"{many.who} neither gained nor lost for certain: {span} the images a second"
    saved = 1000 * (found.alone.per_image("compute") - many.per_image("compute"))
    if saved > 0:
        work = f"sharing the computation saved {seconds_text(saved)}"
    else:
        work = f"computing took {seconds_text(-saved)} longer: small slices use a device badly"
    reduction = many.part("gradient reduction")
    if reduction.measurable:
        cost = f"summing the gradients cost {seconds_text(1000 * many.per_image(reduction.name))}"
    else:
        cost = "summing the gradients cost too little to measure"
    return f"{verdict}. For every 1000 images, {work}; {cost}."


@contextmanager
def _restored(job: Job) -> Iterator[None]:
    """Give a job its variables back: timing trains it, and without reduction its replicas part."""
    variables = [*job.model.variables, *job.optimizer.variables()]
    before = [v.numpy() for v in variables]
    try:
        yield
    finally:
        for variable, value in zip(variables, before, strict=True):
            variable.assign(value)
