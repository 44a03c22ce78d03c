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
from typing import TYPE_CHECKING, Any

from labkit.hardware.devices import import_tensorflow
from labkit.kinds import LabError
from labkit.training.parts import CONFIDENCE, Breakdown, Part, Step

if TYPE_CHECKING:
    from labkit.timing import Comparison
    from labkit.training.job import Job

__all__ = ["breakdown"]

CALL_SECONDS = 0.08  # of one timed call: long against the clock, short against a lesson


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
            time_limit=deadline,
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
    order = job.order(0)
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
