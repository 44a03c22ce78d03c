"""Where the time of a step goes: the step with and without its parts, timed in turn.

    compute             the same images in every step, each replica on its own: measured
    input               fresh images in every step, less the same images in every step
    gradient reduction  gradients summed over the replicas, less each replica on its own

Each removes one more part from the step, so the parts add up to it. Every part is a difference
within a round, so that a machine that drifts cannot fake one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from labkit import plain
from labkit.hardware.devices import import_tensorflow
from labkit.kinds import Kind, LabError, ratio_text, seconds_text
from labkit.timing.intervals import shift
from labkit.training.inputs import cached_batch
from labkit.training.job import Job

__all__ = ["Breakdown", "Part", "StepTime", "breakdown"]

CONFIDENCE = 0.95
CALL_SECONDS = 0.08  # of one timed call: long against the clock, short against a lesson


@plain.stored
@dataclass(frozen=True)
class Part:
    """Seconds of a step that one part takes, and their interval; zero if not measurable."""

    name: str
    seconds: float
    low: float
    high: float

    @property
    def measurable(self) -> bool:
        """Whether it certainly took time."""
        return self.low > 0

    def text(self, times: float) -> str:
        """The seconds of so many steps."""
        seconds, low, high = (seconds_text(times * s) for s in (self.seconds, self.low, self.high))
        if self.measurable:
            return f"{seconds} ({low} to {high})"
        return f"not measurable (below {high})" if self.high > 0 else "none"


@plain.stored
@dataclass(frozen=True)
class StepTime:
    """The parts of one step: compute, input and gradient reduction."""

    replicas: int
    global_batch: int
    parts: tuple[Part, ...]

    @staticmethod
    def of(replicas: int, global_batch: int, seconds: Mapping[str, Sequence[float]]) -> StepTime:
        """From the seconds of a step with and without its parts, round by round.

        >>> rounds = {"step": [5], "no reduction": [4], "compute": [3]}
        >>> step = StepTime.of(2, 64, {name: 6 * seconds for name, seconds in rounds.items()})
        >>> [part.seconds for part in step.parts], step.seconds
        ([3.0, 1.0, 1.0], 5.0)
        """
        fresh = _difference("input", seconds["no reduction"], seconds["compute"])
        reduction = _difference("gradient reduction", seconds["step"], seconds["no reduction"])
        # What remains of the step, so that the parts add up to it: what is not measurable is here.
        rest = shift(seconds["step"], CONFIDENCE).value - fresh.seconds - reduction.seconds
        found = shift(seconds["compute"], CONFIDENCE)
        compute = Part("compute", rest, min(found.low, rest), max(found.high, rest))
        return StepTime(replicas, global_batch, (compute, fresh, reduction))

    @property
    def seconds(self) -> float:
        """The whole step."""
        return sum(part.seconds for part in self.parts)

    @property
    def who(self) -> str:
        """What does the step."""
        return "one device" if self.replicas == 1 else f"{self.replicas} replicas"


def _difference(name: str, longer: Sequence[float], shorter: Sequence[float]) -> Part:
    found = shift([a - b for a, b in zip(longer, shorter, strict=True)], CONFIDENCE)
    return Part(name, found.value if found.low > 0 else 0.0, found.low, found.high)


@plain.stored
@dataclass(frozen=True)
class Breakdown:
    """The parts of a step on one device and on replicas, and the ratio of their throughputs."""

    title: str
    alone: StepTime
    together: StepTime
    faster: float
    """Images/s on the replicas over images/s on one device, with its interval."""
    low: float
    high: float
    confidence: float
    """Of all intervals; few rounds cannot give 95 %."""
    kind: Kind

    @property
    def reason(self) -> str:
        """Whether the replicas gained or lost, and what became of each part, as measured."""
        one, many = self.alone, self.together
        verdict = "neither gained nor lost measurably"
        if self.low > 1 or self.high < 1:
            verdict = "gained" if self.low > 1 else "lost"
        changes = [
            f"{ours.name} {_per_1000(one, alone.seconds)} on one device, "
            f"{_per_1000(many, ours.seconds)} on {many.who}"
            for alone, ours in zip(one.parts, many.parts, strict=True)
            if ours.measurable or alone.measurable
        ]
        span = f"{ratio_text(self.low)} to {ratio_text(self.high)}"
        return (
            f"{many.who} {verdict}: {ratio_text(self.faster)} ({span}) the images/s of one device. "
            f"For 1000 images: {'; '.join(changes)}."
        )

    def _table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """The head; and the rows: the parts, and the step that they add up to."""
        steps = (self.alone, self.together)
        head = ("for 1000 images", *(f"{s.who}, steps of {s.global_batch}" for s in steps))
        rows = [
            (
                parts[0].name,
                *(p.text(1000 / s.global_batch) for s, p in zip(steps, parts, strict=True)),
            )
            for parts in zip(*(step.parts for step in steps), strict=True)
        ]
        return head, [*rows, ("together: the step", *(_per_1000(s, s.seconds) for s in steps))]

    def plot(self) -> Any:
        """The parts as stacked bars, for 1000 images."""
        from labkit.views.bars import parts_of_a_step

        return parts_of_a_step(self)

    def _footer(self) -> str:
        return f"{self.kind}; intervals of {self.confidence:.0%}."

    def __str__(self) -> str:
        head, rows = self._table()
        lines = [self.title, *(" | ".join(row) for row in (head, *rows))]
        return "\n".join([*lines, self.reason, self._footer()])

    __repr__ = __str__

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        from labkit.views.table import table

        html = table(*self._table(), caption=self.title, footer=f"{self.reason} {self._footer()}")
        return {"text/plain": str(self), "text/html": html}


def _per_1000(step: StepTime, seconds: float) -> str:
    return seconds_text(1000 * seconds / step.global_batch)


def breakdown(job: Job, *, rounds: int = 15, time_limit: float = 120.0) -> Breakdown:
    """Time a job's step with and without its parts, beside the same job on one device.

    >>> breakdown(Job("dense", data, replicas=labkit.replicas(2))).plot()  # doctest: +SKIP

    The job's weights are as before afterwards.
    """
    from labkit.hardware import replicas
    from labkit.timing import compare

    if job.replicas.count == 1:
        raise LabError(
            "This job has one replica: there is nothing to compare it with. "
            "Take a job with replicas=labkit.replicas(2)."
        )
    alone = job.on(replicas(devices=[job.replicas.devices[0]]))
    with _restored(alone), _restored(job):
        steps = {one: _steps_per_call(one) for one in (alone, job)}
        calls = {one: _variants(one, count) for one, count in steps.items()}
        timed = compare(
            {f"{one.replicas.count}, {n}": c for one in calls for n, c in calls[one].items()},
            rounds=rounds, time_limit=time_limit, warmup=4, unit="steps", seed=0,
        )  # fmt: skip

    def seconds(one: Job, name: str) -> list[float]:
        return [s / steps[one] for s in timed.samples(f"{one.replicas.count}, {name}")]

    times = {one: {name: seconds(one, name) for name in calls[one]} for one in calls}
    times[alone]["no reduction"] = times[alone]["step"]
    per_image = [[s / one.global_batch for s in times[one]["step"]] for one in (alone, job)]
    ratio = shift([math.log(a / b) for a, b in zip(*per_image, strict=True)], CONFIDENCE)
    of_one, of_many = (
        StepTime.of(one.replicas.count, one.global_batch, found) for one, found in times.items()
    )
    return Breakdown(
        title=f"Where a step goes: {job.model.name} model on {job.data.label}",
        alone=of_one,
        together=of_many,
        faster=math.exp(ratio.value),
        low=math.exp(ratio.low),
        high=math.exp(ratio.high),
        confidence=ratio.confidence or 0.0,
        kind=job.kind,
    )


def _variants(job: Job, steps: int) -> dict[str, Callable[[], None]]:
    """The step with and without its parts: each as a call of so many steps."""
    tf = import_tensorflow()
    order, zero, count = job.order(0), tf.constant(0), tf.constant(steps)

    def loop(run_steps: Any) -> Callable[[], None]:
        def call() -> None:
            run_steps(order, zero, count)
            job.synchronize()

        return call

    same_images = cached_batch(job.strategy, job.inputs, job.global_batch)
    variants = {
        "step": loop(job.run_steps),
        "compute": loop(job.build_loop(same_images, reduce=False)),
    }
    if job.replicas.count > 1:
        variants["no reduction"] = loop(job.build_loop(job.inputs, reduce=False))
    return variants


def _steps_per_call(job: Job) -> int:
    """As many steps as take CALL_SECONDS, by a probe of eight."""
    tf = import_tensorflow()
    probe = min(8, job.steps_per_epoch)
    for _ in ("warm up", "time"):
        began = time.perf_counter()
        job.run_steps(job.order(0), tf.constant(0), tf.constant(probe))
        job.synchronize()
        per_step = (time.perf_counter() - began) / probe
    return int(min(max(4, CALL_SECONDS / per_step), job.steps_per_epoch))


@contextmanager
def _restored(job: Job) -> Iterator[None]:
    """Give a job its variables back: timing trains, and without reduction the replicas differ."""
    variables = [*job.model.variables, *job.optimizer.variables()]
    before = [v.numpy() for v in variables]
    try:
        yield
    finally:
        for variable, value in zip(variables, before, strict=True):
            variable.assign(value)
