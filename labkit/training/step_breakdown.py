"""Where the time of a step goes: the step with and without its parts, timed in turn.

    compute, overhead   the same images in every step, each replica on its own: measured. It also
                        holds the start of kernels, and waiting for shared cores and memory
    input               fresh images in every step, less the same images in every step
    gradient reduction  gradients summed over the replicas, less each replica on its own

Each removes one more part from the step, so the parts add up to it. Every part is a difference
within a round, so that a machine that drifts cannot fake one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from labkit.hardware import replicas
from labkit.hardware.devices import import_tensorflow
from labkit.kinds import Kind, LabError, seconds_text
from labkit.shown import ShownAsTable
from labkit.timing import Verdict, compare, judge
from labkit.timing.estimate import percent
from labkit.timing.intervals import shift
from labkit.timing.verdict import CONFIDENCE
from labkit.training.inputs import cached_batch
from labkit.training.job import Job

if TYPE_CHECKING:
    from labkit.views.figure import Picture
    from labkit.views.table import Table

CALL_SECONDS = 0.08  # of one timed call: long against the clock, short against a lesson


@dataclass(frozen=True)
class StepPart:
    """The seconds of a part of a step, with their interval; zero if not measurable."""

    name: str
    seconds: float
    low: float
    high: float

    @property
    def measurable(self) -> bool:
        """Whether it certainly took time."""
        return self.low > 0

    def text(self, steps: float) -> str:
        """Returns the seconds of `steps` steps in words."""
        seconds, low, high = (seconds_text(steps * s) for s in (self.seconds, self.low, self.high))
        if self.measurable:
            return f"{seconds} ({low} to {high})"
        return f"not measurable (below {high})" if self.high > 0 else "none"


@dataclass(frozen=True)
class StepTime:
    """The parts of one step: compute with overhead, input and gradient reduction."""

    replicas: int
    global_batch: int
    parts: tuple[StepPart, ...]

    @property
    def seconds(self) -> float:
        """The whole step."""
        return sum(part.seconds for part in self.parts)

    @property
    def who(self) -> str:
        """What does the step."""
        return "one device" if self.replicas == 1 else f"{self.replicas} replicas"


def step_time(replicas: int, global_batch: int, seconds: Mapping[str, Sequence[float]]) -> StepTime:
    """Returns the parts, from the seconds of a step with and without them, round by round.

    >>> rounds = {"step": [5.0] * 6, "no reduction": [4.0] * 6, "compute": [3.0] * 6}
    >>> step = step_time(2, 64, rounds)
    >>> [part.seconds for part in step.parts], step.seconds
    ([3.0, 1.0, 1.0], 5.0)
    """
    apart = seconds.get("no reduction", seconds["step"])  # one device has nothing to reduce
    fresh = _difference("input", apart, seconds["compute"])
    reduction = _difference("gradient reduction", seconds["step"], apart)
    # What remains of the step, so that the parts add up to it: what is not measurable is here.
    rest = shift(seconds["step"], CONFIDENCE).value - fresh.seconds - reduction.seconds
    found = shift(seconds["compute"], CONFIDENCE)
    compute = StepPart("compute, overhead", rest, min(found.low, rest), max(found.high, rest))
    return StepTime(replicas, global_batch, (compute, fresh, reduction))


def _difference(name: str, longer: Sequence[float], shorter: Sequence[float]) -> StepPart:
    found = shift([a - b for a, b in zip(longer, shorter, strict=True)], CONFIDENCE)
    return StepPart(name, found.value if found.low > 0 else 0.0, found.low, found.high)


@dataclass(frozen=True, repr=False)
class Breakdown(ShownAsTable):
    """The parts of a step on one device and on replicas, and which has the higher throughput."""

    title: str
    alone: StepTime
    together: StepTime
    verdict: Verdict
    kind: Kind

    def picture(self) -> Picture:
        """Returns the parts as stacked bars, for 1000 images."""
        from labkit.views.bars import stacked

        rows = {
            # A part whose interval holds zero is noise: it gets no bar.
            f"{step.who}, steps of {step.global_batch}": {
                part.name: 1000 * part.seconds / step.global_batch if part.measurable else 0.0
                for part in step.parts
            }
            for step in (self.alone, self.together)
        }
        said = "; ".join(
            f"{name}: "
            + ", ".join(f"{part} {seconds_text(time)}" for part, time in row.items() if time)
            for name, row in rows.items()
        )
        title = "The parts of a training step, for 1000 images"
        board = stacked(title, self.title, rows, seconds_text, self.kind)
        return board.picture(f"{self.title}, for 1000 images. {said}. {self.verdict}.")

    def table(self) -> Table:
        """Returns the parts, and the step that they add up to."""
        from labkit.views.table import Table

        one, many = self.alone, self.together
        head = ("for 1000 images", *(f"{s.who}, steps of {s.global_batch}" for s in (one, many)))
        few, fewer = 1000 / one.global_batch, 1000 / many.global_batch  # steps
        rows = [
            (alone.name, alone.text(few), ours.text(fewer))
            for alone, ours in zip(one.parts, many.parts, strict=True)
        ]
        whole = seconds_text(few * one.seconds), seconds_text(fewer * many.seconds)
        rows.append(("together: the step", *whole))
        sure = percent(self.verdict.estimate.confidence or 0)
        footer = f"{self.verdict}.\nIntervals of {sure}; {self.kind}."
        return Table(head, rows, self.title, footer)


def breakdown(job: Job, *, rounds: int = 15) -> Breakdown:
    """Time a step with and without its parts, beside the same step on one device.

    >>> breakdown(Job("dense", data, replicas=labkit.replicas(2))).picture()  # doctest: +SKIP

    It trains copies of the job: the job itself stays as it is.
    """
    if job.replicas.count == 1:
        raise LabError(
            "This job has one replica: there is nothing to compare it with. "
            "Take a job with replicas=labkit.replicas(2)."
        )
    jobs = alone, together = (
        job.on(replicas(devices=[job.replicas.devices[0]])),
        job.on(job.replicas),
    )
    steps = {one: _steps_per_call(one) for one in jobs}
    variants = {one: _variants(one, steps[one]) for one in jobs}
    timed = compare(
        {f"{one.replicas.count}, {name}": call
         for one in jobs for name, call in variants[one].items()},
        rounds=rounds, time_limit=120.0, warmup=4, unit="steps", seed=0,
    )  # fmt: skip
    seconds = {
        one: {
            name: [s / steps[one] for s in timed.samples(f"{one.replicas.count}, {name}")]
            for name in variants[one]
        }
        for one in jobs
    }
    of_one, of_many = (
        step_time(one.replicas.count, one.global_batch, seconds[one]) for one in jobs
    )
    larger = math.log(job.global_batch / alone.global_batch)
    pairs = zip(seconds[alone]["step"], seconds[together]["step"], strict=True)
    speedups = [math.log(a / b) + larger for a, b in pairs]
    return Breakdown(
        title=f"Where a step goes: {job.model.name} model on {job.data.label}",
        alone=of_one,
        together=of_many,
        verdict=judge(of_many.who, of_one.who, speedups, kind=job.kind),
        kind=job.kind,
    )


def _variants(job: Job, steps: int) -> dict[str, Callable[[], None]]:
    """Returns the step with and without its parts, each as a function that runs `steps` steps."""
    order = job.order(0)
    same_images = cached_batch(job.strategy, job.inputs, job.global_batch)
    loops = {"step": job.run_steps, "compute": job.build_loop(same_images, reduce=False)}
    if job.replicas.count > 1:
        loops["no reduction"] = job.build_loop(job.inputs, reduce=False)
    return {name: partial(_run, job, loop, order, steps) for name, loop in loops.items()}


def _run(job: Job, run_steps: Any, order: Any, steps: int) -> None:
    tf = import_tensorflow()
    run_steps(order, tf.constant(0), tf.constant(steps))
    job.synchronize()


def _steps_per_call(job: Job) -> int:
    """Returns how many steps take CALL_SECONDS, from a probe of eight."""
    probe, order = min(8, job.steps_per_epoch), job.order(0)
    for _ in ("warm up", "time"):
        began = time.perf_counter()
        _run(job, job.run_steps, order, probe)
        per_step = (time.perf_counter() - began) / probe
    return int(min(max(4, CALL_SECONDS / per_step), job.steps_per_epoch))
