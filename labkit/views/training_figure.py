"""What training left behind as curves: over epochs, and over time."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from labkit.kinds import percent_text, seconds_text
from labkit.views.figure import (
    INK,
    Picture,
    figure,
    legend_below,
    look,
    mark_target,
    picture,
    style,
    time_axis,
)  # fmt: skip


def curves(
    trainings: Sequence[Any], names: Sequence[str] = (), target: float | None = None
) -> Picture:
    """Loss by epoch, and accuracy by seconds of training, with the accuracy to reach."""
    labels = list(names) or [_who(one) for one in trainings]
    first = trainings[0]
    said = "; ".join(
        f"{label}: loss {one.epochs[-1].loss:.3f}, accuracy {percent_text(one.accuracy)} after "
        f"{len(one.epochs)} epochs in {seconds_text(one.seconds)}"
        for label, one in zip(labels, trainings, strict=True)
        if one.epochs
    )
    with style():
        chart = figure(8, 3.9)
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
        if target is not None:
            mark_target(accuracy, 100 * target, f"target\n{percent_text(target)}")
        time_axis(accuracy)
        legend_below(chart, loss)
        title = f"{first.model} model on {first.data}"
        chart.suptitle(title, x=0.02, ha="left", size=10.5, color=INK)
        kind = max(trainings, key=lambda one: one.replicas).kind
        return picture(chart, f"Curves of the {title}. {said}.", kind)


def _who(training: Any) -> str:
    count = training.replicas
    return f"{'1 replica' if count == 1 else f'{count} replicas'}, batch {training.global_batch}"
