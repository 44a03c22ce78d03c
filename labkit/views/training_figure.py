"""What training left behind, as pictures: curves over epochs and time, and the parts of a step."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from labkit.kinds import percent_text, seconds_text
from labkit.views.figure import INK, Picture, figure, look, picture, style

__all__ = ["curves", "parts_of_a_step"]


def curves(trainings: Sequence[Any], names: Sequence[str] = ()) -> Picture:
    """Loss by epoch, and accuracy by seconds of training: the second is what a reader waits for."""
    labels = list(names) or [_who(one) for one in trainings]
    first = trainings[0]
    said = "; ".join(
        f"{label}: loss {one.epochs[-1].loss:.3f}, accuracy {percent_text(one.accuracy)} after "
        f"{len(one.epochs)} epochs in {seconds_text(one.seconds)}"
        for label, one in zip(labels, trainings, strict=True)
        if one.epochs
    )
    with style():
        chart = figure(8, 3.6)
        loss, accuracy = chart.subplots(1, 2)
        loss.set(title="Training loss", xlabel="epoch", ylabel="cross-entropy")
        accuracy.set(title="Test accuracy", xlabel="seconds of training", ylabel="per cent")
        for number, (label, one) in enumerate(zip(labels, trainings, strict=True)):
            line = {"label": label, **look(number).line}
            epochs = range(1, len(one.epochs) + 1)
            seconds = list(accumulate(epoch.seconds for epoch in one.epochs))
            loss.plot(epochs, [epoch.loss for epoch in one.epochs], **line)
            accuracy.plot(seconds, [100 * epoch.accuracy for epoch in one.epochs], **line)
        loss.set_ylim(bottom=0)
        loss.xaxis.get_major_locator().set_params(integer=True)
        accuracy.set_xlim(left=0)
        # Names beside the lines would lie on one another, as lines do; losses leave this corner.
        loss.legend(loc="upper right")
        title = f"{first.model} model on {first.data}"
        chart.suptitle(title, x=0.02, ha="left", size=10.5, color=INK)
        kind = max(trainings, key=lambda one: one.replicas).kind
        return picture(chart, f"Curves of the {title}. {said}.", kind)


def parts_of_a_step(found: Any) -> Picture:
    """One bar for one device, one for the replicas: seconds for 1000 images, part by part."""
    steps = (found.alone, found.together)
    said = "; ".join(
        f"{step.who}: "
        + ", ".join(
            f"{part.name} {seconds_text(1000 * part.seconds / step.global_batch)}"
            for part in step.parts
            if part.measurable
        )
        for step in steps
    )
    with style():
        chart = figure(8, 3.4)
        axes = chart.add_subplot(xlabel="milliseconds for 1000 images")
        axes.set_title(textwrap.fill(found.title, 60))
        axes.grid(axis="y", visible=False)
        axes.grid(axis="x", visible=True)
        for row, step in enumerate(steps):
            left = 0.0
            for number, part in enumerate(step.parts):
                # A part whose interval holds zero is noise: it gets no bar.
                width = 1e6 * part.seconds / step.global_batch if part.measurable else 0.0
                axes.barh(
                    row, width, left=left, height=0.5, linewidth=1,
                    label=part.name if row == 0 else None, **look(number).bar,
                )  # fmt: skip
                left += width
        axes.set_yticks(range(2), [f"{step.who}\nsteps of {step.global_batch}" for step in steps])
        axes.set_ylim(1.5, -0.5)
        axes.tick_params(axis="y", length=0)
        axes.legend(loc="upper center", bbox_to_anchor=(0.45, -0.22), ncols=4)
        alt = f"{found.title}, for 1000 images. {said}. {found.verdict}."
        return picture(chart, alt, found.kind)


def _who(training: Any) -> str:
    count = training.replicas
    return f"{'1 replica' if count == 1 else f'{count} replicas'}, batch {training.global_batch}"
