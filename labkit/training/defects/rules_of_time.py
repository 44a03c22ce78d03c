"""The rules about clocks and about what they time."""

from __future__ import annotations

from collections.abc import Iterator

from labkit.training.defects.calls import CPU_CLOCKS, JUMPING_CLOCKS
from labkit.training.defects.diagnosis import Finding
from labkit.training.defects.story import Region, Story
from labkit.training.defects.values import Spot

__all__ = ["clock", "first_epoch", "one_run", "timed_evaluation", "timed_preparation"]


def clock(story: Story) -> Iterator[Finding]:
    """CPU clocks, and clocks that may jump."""
    regions = [one for one in story.regions if one.clock in CPU_CLOCKS]
    places = [one.first for one in regions if not _timed_otherwise(story, one)]
    if (
        not regions
        and story.fits
        and all(one.path in CPU_CLOCKS | JUMPING_CLOCKS for one in story.clocks)
    ):
        places = [one.spot for one in story.clocks if one.path in CPU_CLOCKS]
    for spot in places:
        yield _told(
            "clock",
            spot,
            "It counts the seconds that all threads together spent on CPUs, not the time that "
            "passed: waiting for a GPU costs nothing, and two busy threads count twice.",
            "Use time.perf_counter(), or labkit.measure and labkit.compare.",
        )
    for region in story.regions:
        if region.clock in JUMPING_CLOCKS and _trains(story, region):
            yield Finding(
                "wall clock",
                "advice",
                (region.first.where,),
                region.first.wrote,
                "This clock is set by the system, and may jump while you time.",
                "Use time.perf_counter(): it only runs forward, and finer.",
            )


def first_epoch(story: Story) -> Iterator[Finding]:
    """Trainings and traced functions that are timed with their start."""
    timed = story.timed_fits()
    for region, fit in timed:
        # Who times a later training of this model by itself has kept the first one apart.
        apart = any(
            other.model is fit.model and not other.cold and where is not region
            for where, other in timed
        )
        once = not region.repeats and region.loops <= fit.model.loops
        if fit.cold and once and not apart:
            yield _told(
                "first epoch",
                fit.spot,
                "This is the model's first training: building, tracing and starting up are timed "
                "with it. That is paid once, not in every epoch.",
                "Train a few steps before the clock starts, or use labkit.compare: it keeps the "
                "first call apart.",
            )
    for traced in story.traced:
        inner = story.innermost(traced.at)
        if inner is not None and not inner.repeats and not inner.loops:
            yield _told(
                "first epoch",
                traced.spot,
                "This tf.function is called for the first time: its tracing is timed with it.",
                "Call it once before the clock starts, or use labkit.compare.",
            )


def timed_evaluation(story: Story) -> Iterator[Finding]:
    """Evaluations that are timed with a training."""
    for work in story.work:
        region = story.innermost(work.at)
        if work.kind == "evaluation" and region is not None and _trains(story, region):
            yield _told(
                "timed evaluation",
                work.spot,
                "The evaluation is timed as if it were training.",
                "Stop the clock before it.",
            )
    for _, fit in story.timed_fits():
        if fit.validates:
            yield _told(
                "timed evaluation",
                fit.spot,
                "fit evaluates after every epoch, and that is timed as if it were training.",
                "Leave the validation out of the timed run, and evaluate after it.",
            )


def timed_preparation(story: Story) -> Iterator[Finding]:
    """Data that are prepared while a training is timed."""
    for work in story.work:
        region = story.innermost(work.at)
        if work.kind == "preparation" and region is not None and _trains(story, region):
            yield _told(
                "timed preparation",
                work.spot,
                "Preparing the data is timed as if it were training.",
                "Prepare before the clock starts.",
            )


def one_run(story: Story) -> Iterator[Finding]:
    """Two programs timed once each."""
    once = [
        (region, fit)
        for region, fit in story.timed_fits()
        if not region.repeats and region.loops <= fit.model.loops
    ]
    apart = {id(region) for region, _ in once}
    if len(apart) < 2 or len({id(fit.model) for _, fit in once}) < 2:
        return
    if any(region.repeats for region in story.regions) or any(region.loops for region, _ in once):
        return
    last = once[-1][0].last
    yield Finding(
        "one run",
        "advice",
        (last.where,),
        last.wrote,
        "One run of each is compared. The same program run twice differs too, and nobody can "
        "tell that from a real difference.",
        "Repeat both in turn, and look at the spread: labkit.compare({name: function, ...}).",
    )


def _told(defect: str, spot: Spot, does: str, mend: str) -> Finding:
    return Finding(defect, "wrong time", (spot.where,), spot.wrote, does, mend)


def _trains(story: Story, region: Region) -> bool:
    """Whether some training lies in a region, and in none inside it."""
    moments = [fit.at for fit in story.fits] + [traced.at for traced in story.traced]
    return any(story.innermost(at) is region for at in moments)


def _timed_otherwise(story: Story, region: Region) -> bool:
    """Whether another clock times the same, so that CPU seconds are only an extra."""
    trained = {fit.at for fit in story.fits if region.holds(fit.at)}
    for other in story.regions:
        if other.clock in CPU_CLOCKS:
            continue
        overlaps = other.start <= region.end and region.start <= other.end
        if overlaps and all(other.holds(at) for at in trained):
            return True
    return False
