"""The rules: each reads the story of a program and tells one defect."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from labkit.training.defects.diagnosis import Finding, Severity
from labkit.training.defects.rules_of_time import (
    clock,
    first_epoch,
    one_run,
    timed_evaluation,
    timed_preparation,
)
from labkit.training.defects.story import Fit, Story
from labkit.training.defects.values import Number, Spot

__all__ = ["findings_in"]

_PER_REPLICA = re.compile(
    r"batch(_size)?\s*[(=]\s*\w*(per_(replica|gpu|device|worker)|(replica|gpu)_batch)",
    re.IGNORECASE,
)
Rule = Callable[[Story], Iterator[Finding]]


def findings_in(story: Story) -> list[Finding]:
    """What all rules say of a program."""
    return [finding for rule in RULES for finding in rule(story)]


def _finding(defect: str, severity: Severity, spot: Spot, does: str, mend: str) -> Finding:
    return Finding(defect, severity, (spot.where,), spot.wrote, does, mend)


def loss(story: Story) -> Iterator[Finding]:
    for model in story.models:
        found, gives = model.loss, model.gives
        if found is None or found.from_logits is None or found.kind == "other":
            continue
        if gives == "logits" and not found.from_logits:
            yield _finding(
                "loss",
                "wrong result",
                found.spot,
                "This loss expects probabilities, and the last layer gives logits (it has no "
                "softmax): the loss means nothing, and training goes astray.",
                "Give the loss as an object with from_logits=True.",
            )
        if gives == "probabilities" and found.from_logits:
            yield _finding(
                "loss",
                "wrong result",
                found.spot,
                "This loss expects logits, and the last layer gives probabilities already: a "
                "second softmax flattens them, and training is slow and stops early.",
                "Take the softmax off the last layer, or leave out from_logits=True.",
            )


def labels(story: Story) -> Iterator[Finding]:
    for fit in story.fits:
        if fit.loss is None or fit.labels is None:
            continue
        if fit.loss.kind == "sparse" and fit.labels:
            yield _finding(
                "labels",
                "wrong result",
                fit.loss.spot,
                "The labels are one-hot rows, and a sparse loss expects one integer for each "
                "image: training stops with an error.",
                "Leave out to_categorical, or use CategoricalCrossentropy.",
            )
        if fit.loss.kind == "categorical" and not fit.labels:
            yield _finding(
                "labels",
                "wrong result",
                fit.loss.spot,
                "The labels are integers, and this loss expects one-hot rows: training stops "
                "with an error.",
                "Use SparseCategoricalCrossentropy: it takes integers.",
            )


def batch(story: Story) -> Iterator[Finding]:
    if story.own_loops:
        return
    for fit in story.fits:
        place = fit.model.built_in
        if place is None or place.count == 1 or fit.batch is None or fit.batch.grows:
            continue
        computed = next((one for one in story.global_batches if one.at < fit.at), None)
        named = _PER_REPLICA.search(fit.batch_spot.wrote)
        if computed is None and not named:
            continue
        share = computed is not None and _divided(fit.batch, computed.number)
        if named or share:
            does = (
                "Keras takes the batch that you give for the global one and divides it: each "
                "replica gets only a part of what was meant for it."
            )
        else:
            assert computed is not None
            does = (
                f"The global batch was computed ({computed.name}), but a number stands here: on "
                "another number of replicas each gets another share of it."
            )
        name = computed.name if computed else "the batch times strategy.num_replicas_in_sync"
        yield _finding("batch", "wrong time", fit.batch_spot, does, f"Write {name} here.")


def different_batch(story: Story) -> Iterator[Finding]:
    for mine, theirs in _compared(story):
        one, other = {fit.batch for fit in mine}, {fit.batch for fit in theirs}
        if None in one | other or one & other:
            continue
        a, b = mine[-1], theirs[-1]
        weak = a.batch is not None and b.batch is not None and _divided(a.batch, b.batch)
        if weak and "weak" in story.text.lower():
            continue
        severity: Severity = "advice" if weak else "wrong time"
        also = (
            " If that is meant, it is weak scaling: say so beside the numbers, and compare images "
            "per second."
            if weak
            else ""
        )
        yield Finding(
            "different batch",
            severity,
            (a.batch_spot.where, b.batch_spot.where),
            b.batch_spot.wrote,
            f"The runs that are compared take batches of {a.batch} and {b.batch}: they do "
            f"different numbers of steps, so neither time nor accuracy compares.{also}",
            "Give both the same global batch (strong scaling).",
        )


def pipeline(story: Story) -> Iterator[Finding]:
    for mine, theirs in _compared(story):
        one, other = {fit.shuffles for fit in mine}, {fit.shuffles for fit in theirs}
        if None in one | other or one & other:
            continue
        lazy = mine[-1] if False in one else theirs[-1]
        yield _finding(
            "pipeline",
            "wrong result",
            lazy.batch_spot if lazy.pipeline else lazy.spot,
            "This run sees the images in the same order every epoch, the other one shuffles them "
            "(fit shuffles arrays by itself): they train differently and do different work.",
            "Shuffle here too: .shuffle(number of images) before .batch(...).",
        )


def shuffle(story: Story) -> Iterator[Finding]:
    for one in story.pipelines:
        shuffles, batches = one.places_of("shuffle"), one.places_of("batch")
        caches = one.places_of("cache")
        if one.places_of("unbatch") or not shuffles or not one.whole:
            continue
        if batches and batches[0] < shuffles[0]:
            yield _finding(
                "shuffle",
                "advice",
                one.ops[shuffles[0]][2],
                "It shuffles batches, not images: the same images meet in a batch every epoch.",
                "Put .shuffle(...) before .batch(...).",
            )
        if caches and shuffles[-1] < caches[-1]:
            yield _finding(
                "shuffle",
                "advice",
                one.ops[caches[-1]][2],
                "The cache keeps the order of the first epoch: it is never shuffled again.",
                "Put .cache() before .shuffle(...).",
            )


def float64(story: Story) -> Iterator[Finding]:
    for array in story.doubles:
        if array.made is not None and (array.used or not (array.mended or array.asked)):
            yield _finding(
                "float64",
                "wrong time",
                array.made,
                "Bytes divided by a Python number become float64: eight times the memory of the "
                "images, and they are converted to float32 again on the way to the model.",
                'Write x.astype("float32") / 255, or keep bytes and scale inside the model.',
            )


def scope(story: Story) -> Iterator[Finding]:
    made = [one for one in story.strategies if one.made and one.count != 1]
    inside = [model for model in story.models if model.built_in is not None]
    outside = [model for model in story.models if model.built_in is None and model.built_here]
    if made and outside and not inside and not story.own_loops:
        model = outside[-1]
        split = model.compiled_in is not None
        does = (
            "The model is made outside the scope and compiled inside it: fit stops with "
            "an error, or trains by luck."
            if split
            else "A strategy is made, but no model is made in its scope: this one trains on a "
            "single device, whatever the strategy says."
        )
        yield _finding(
            "scope", "wrong result", model.spot, does,
            "Make and compile the model inside `with strategy.scope():`.",
        )  # fmt: skip
    for model in inside:
        if model.compiled is not None and model.compiled_in is None:
            yield _finding(
                "scope",
                "wrong result",
                model.compiled,
                "The model is made inside the strategy's scope and compiled outside it: fit stops "
                "with an error, or trains by luck.",
                "Indent compile as well, into `with strategy.scope():`.",
            )


def keras_3(story: Story) -> Iterator[Finding]:
    if "TF_USE_LEGACY_KERAS" in story.text or "tf_keras" in story.text:
        return
    for spot, why in story.breaks:
        harmless = "only warns" in why or "later" in why
        yield _finding(
            "Keras 3",
            "advice" if harmless else "wrong result",
            spot,
            f"In Keras 3, {why}.",
            _MENDS[next(key for key in _MENDS if key in why)],
        )


_MENDS = {
    "to_categorical": "Leave out dtype; .astype(...) the result if you need another type.",
    "input_shape": "Begin the model with keras.Input(shape=...).",
    "model.save": 'Write model.save("model.keras").',
    "saved_model": 'Save with model.save("model.keras") and load with keras.models.load_model; '
    "for serving, model.export(folder) and then .serve(...).",
}


def _compared(story: Story) -> Iterator[tuple[list[Fit], list[Fit]]]:
    """The timed trainings by strategy, without one first: these are compared."""
    by_place: dict[int, list[Fit]] = {}
    for _, fit in story.timed_fits():
        if fit.model.built_here:
            by_place.setdefault(id(fit.model.built_in), []).append(fit)
    groups = list(by_place.values())
    for place, theirs in enumerate(groups[1:], 1):
        yield groups[place - 1], theirs


def _divided(part: Number, whole: Number) -> bool:
    """Whether `whole` is `part` for each of the replicas."""
    one, other = (part, whole) if whole.grows else (whole, part)
    rest = tuple(factor for factor in other.factors if factor != "replicas")
    return other.grows and one.value == other.value and one.factors == rest


RULES: tuple[Rule, ...] = (
    loss, labels, scope, keras_3, pipeline, clock, first_epoch, timed_evaluation,
    timed_preparation, batch, different_batch, float64, shuffle, one_run,
)  # fmt: skip
