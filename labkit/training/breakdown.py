"""Where the time of a step goes: the step with and without its parts, timed in turn.

    compute             the same images in every step, each replica on its own: measured
    input               fresh images in every step, less the same images in every step
    gradient reduction  gradients summed over the replicas, less each replica on its own

Each removes one more part from the step, so the parts add up to it. Host dispatch (each step called
from Python, less many steps in one call) comes on top, and stands apart: a job's step has none.
Every part is a difference within a round, so that a machine that drifts cannot fake one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from labkit import plain
from labkit.arguments import whole
from labkit.hardware.tensorflow import import_tensorflow
from labkit.kinds import Kind, LabError, ratio_text, seconds_text
from labkit.timing.intervals import Interval, shift
from labkit.training.inputs import cached_batch
from labkit.training.job import Job

__all__ = ["Breakdown", "Part", "StepTime", "breakdown"]

CONFIDENCE = 0.95
LEAST_ROUNDS = 6  # fewer have no interval of 95 %
CALL_SECONDS = 0.08  # of one timed call: long against the clock, short against a lesson


@plain.stored
@dataclass(frozen=True)
class Part:
    """Seconds of a step that one part takes, and their interval."""

    name: str
    seconds: float
    low: float
    high: float

    @property
    def measurable(self) -> bool:
        """Whether it took any time for certain; a part that did not counts as zero."""
        return self.low > 0

    def __str__(self) -> str:
        if self.measurable:
            low, high = seconds_text(self.low), seconds_text(self.high)
            return f"{seconds_text(self.seconds)} ({low} to {high})"
        return f"not measurable (below {seconds_text(self.high)})" if self.high > 0 else "none"


@plain.stored
@dataclass(frozen=True)
class StepTime:
    """The time of one step, its parts, and what calling each step from Python would add."""

    replicas: int
    global_batch: int
    parts: tuple[Part, ...]
    dispatch: Part

    @staticmethod
    def of(replicas: int, global_batch: int, seconds: Mapping[str, Sequence[float]]) -> StepTime:
        """From the seconds of a step, round by round, of each variant that `breakdown` times.

        >>> rounds = {"step": [5] * 6, "no reduction": [4] * 6, "compute": [3] * 6, "called": [7] * 6}
        >>> step = StepTime.of(2, 64, rounds)
        >>> [part.seconds for part in step.parts], step.seconds, step.dispatch.seconds
        ([3.0, 1.0, 1.0], 5.0, 2.0)
        """  # noqa: E501
        whole_step = shift(seconds["step"], CONFIDENCE).value
        apart = {
            "input": _part("input", seconds["no reduction"], seconds["compute"]),
            "reduction": _part("gradient reduction", seconds["step"], seconds["no reduction"]),
        }
        found = shift(seconds["compute"], CONFIDENCE)
        # What remains of the step: so the parts add up to it, and noise counts as no part.
        rest = whole_step - sum(part.seconds for part in apart.values())
        compute = Part("compute", rest, min(found.low, rest), max(found.high, rest))
        dispatch = _part("host dispatch", seconds["called"], seconds["step"])
        return StepTime(replicas, global_batch, (compute, *apart.values()), dispatch)

    @property
    def seconds(self) -> float:
        """The whole step, without host dispatch."""
        return sum(part.seconds for part in self.parts)

    @property
    def who(self) -> str:
        """What does the step."""
        return "one device" if self.replicas == 1 else f"{self.replicas} replicas"

    def part(self, name: str) -> Part:
        """A part by its name."""
        return next(part for part in (*self.parts, self.dispatch) if part.name == name)

    def per_1000(self, seconds: float) -> str:
        """Seconds of a step as the time for 1000 images."""
        return seconds_text(1000 * seconds / self.global_batch)


@plain.stored
@dataclass(frozen=True)
class Breakdown:
    """The parts of a step on one device and on replicas, and which has the larger throughput."""

    title: str
    alone: StepTime
    together: StepTime
    faster: float
    """Images/s on the replicas over images/s on one device, with its interval."""
    low: float
    high: float
    kind: Kind

    @property
    def reason(self) -> str:
        """Whether the replicas gained or lost, and by which parts, as measured."""
        one, many = self.alone, self.together
        verdict = "neither gained nor lost measurably"
        if self.low > 1 or self.high < 1:
            verdict = "gained" if self.low > 1 else "lost"
        changes = [
            f"{part.name} {one.per_1000(one.part(part.name).seconds)} → "
            f"{many.per_1000(part.seconds)}"
            for part in many.parts
            if part.measurable or one.part(part.name).measurable
        ]
        return (
            f"{many.who} {verdict}: {ratio_text(self.faster)} ({ratio_text(self.low)} to "
            f"{ratio_text(self.high)}) the images/s of one device. For 1000 images, one device → "
            f"{many.who}: {'; '.join(changes)}."
        )

    @property
    def head(self) -> tuple[str, ...]:
        """Column heads that name the batch of each step."""
        steps = self.alone, self.together
        return (
            "part",
            *(f"{step.who}, step of {step.global_batch}" for step in steps),
            *(f"{step.who}, 1000 images" for step in steps),
        )

    def rows(self) -> list[tuple[str, ...]]:
        """The parts, the step that they add up to, and host dispatch, which is not in it."""
        steps = self.alone, self.together

        def row(name: str, parts: list[Part]) -> tuple[str, ...]:
            times = [s.per_1000(p.seconds) for s, p in zip(steps, parts, strict=True)]
            return (name, *map(str, parts), *times)

        return [
            *(row(part.name, [s.part(part.name) for s in steps]) for part in self.alone.parts),
            (
                "step",
                *(seconds_text(step.seconds) for step in steps),
                *(step.per_1000(step.seconds) for step in steps),
            ),
            row("host dispatch, on top if each step is called", [s.dispatch for s in steps]),
        ]

    def plot(self) -> Any:
        """The parts as stacked bars, for 1000 images."""
        from labkit.views.training_figure import parts_of_a_step

        return parts_of_a_step(self)

    def __str__(self) -> str:
        lines = [self.title, " | ".join(self.head), *(" | ".join(row) for row in self.rows())]
        return "\n".join([*lines, self.reason, f"{self.kind}; intervals of {CONFIDENCE:.0%}"])

    __repr__ = __str__

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from labkit.views.table import table

        footer = f"{self.reason} {self.kind}; intervals of {CONFIDENCE:.0%}."
        html = table(self.head, self.rows(), caption=self.title, footer=footer)
        return {"text/plain": str(self), "text/html": html}


def breakdown(job: Job, *, rounds: int = 15, deadline: float = 120.0) -> Breakdown:
    """Time a job's step with and without its parts, beside the same job on one device.

    >>> breakdown(Job("dense", data, replicas=labkit.replicas(2))).plot()  # doctest: +SKIP

    The job's weights are as before afterwards.
    """
    from labkit.hardware import replicas
    from labkit.timing import compare

    rounds = whole("rounds", rounds, at_least=LEAST_ROUNDS)
    if job.replicas.count == 1:
        raise LabError(
            "This job has one replica: there is nothing to compare it with. "
            "Take a job with replicas=labkit.replicas(2)."
        )
    jobs = {"alone": job.on(replicas(devices=[job.replicas.devices[0]])), "together": job}
    with _restored(jobs["alone"]), _restored(job):
        calls: dict[str, Callable[[], None]] = {}
        steps = {name: _steps_per_call(one) for name, one in jobs.items()}
        for name, one in jobs.items():
            for variant, call in _variants(one, steps[name]).items():
                calls[f"{name}, {variant}"] = call
        timed = compare(calls, rounds=rounds, deadline=deadline, warmup=4, unit="steps", seed=0)
    if timed.rounds < LEAST_ROUNDS:
        raise LabError(
            f"Only {timed.rounds} rounds were timed until the deadline ({deadline:g} s) or Ctrl-C. "
            "Give a longer deadline, or a smaller batch."
        )
    seconds = {
        name: {
            variant: [call / steps[name] for call in timed.log.samples(f"{name}, {variant}")]
            for variant in ("step", "no reduction", "compute", "called")
            if f"{name}, {variant}" in calls
        }
        for name in jobs
    }
    seconds["alone"]["no reduction"] = seconds["alone"]["step"]
    times = {n: StepTime.of(j.replicas.count, j.global_batch, seconds[n]) for n, j in jobs.items()}
    ratio = _throughput_ratio(
        [second / jobs["alone"].global_batch for second in seconds["alone"]["step"]],
        [second / job.global_batch for second in seconds["together"]["step"]],
    )
    return Breakdown(
        title=f"Where a step goes: {job.model.name} model on {job.data.label}",
        alone=times["alone"],
        together=times["together"],
        faster=math.exp(ratio.value),
        low=math.exp(ratio.low),
        high=math.exp(ratio.high),
        kind=job.kind,
    )


def _variants(job: Job, steps: int) -> dict[str, Callable[[], None]]:
    """The step with and without its parts: each as a call of so many steps."""
    tf = import_tensorflow()
    order, zero, one, count = job.order(0), *map(tf.constant, (0, 1, steps))

    def loop(run_steps: Any) -> Callable[[], None]:
        def call() -> None:
            run_steps(order, zero, count)
            job.synchronize()

        return call

    def called() -> None:
        for number in range(steps):
            job.run_steps(order, tf.constant(number), one)
        job.synchronize()

    same_images = cached_batch(job.strategy, job.inputs, job.global_batch)
    variants = {
        "step": loop(job.run_steps),
        "compute": loop(job.build_loop(same_images, reduce=False)),
        "called": called,
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


def _part(name: str, longer: Sequence[float], shorter: Sequence[float]) -> Part:
    """The difference within the rounds; zero where it is not measurable."""
    found = shift([a - b for a, b in zip(longer, shorter, strict=True)], CONFIDENCE)
    return Part(name, found.value if found.low > 0 else 0.0, found.low, found.high)


def _throughput_ratio(alone: Sequence[float], together: Sequence[float]) -> Interval:
    """The logarithm of the ratio, from the seconds of an image."""
    return shift([math.log(a / b) for a, b in zip(alone, together, strict=True)], CONFIDENCE)


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
