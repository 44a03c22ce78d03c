"""The results of a training job as plain data: a line for each epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from labkit.kinds import Kind, count_text, counted, percent_text, rate_text, seconds_text
from labkit.shown import ShownAsTable

if TYPE_CHECKING:
    from labkit.views.figure import Picture
    from labkit.views.table import Table


@dataclass(frozen=True)
class Epoch:
    """One pass over the training images, timed without the evaluation that follows it."""

    seconds: float
    loss: float
    accuracy: float
    """On the test images, after this epoch."""


@dataclass(frozen=True)
class Score:
    """Loss and accuracy on the test images."""

    loss: float
    accuracy: float
    images: int

    def __str__(self) -> str:
        return (
            f"loss {self.loss:.4f}, accuracy {percent_text(self.accuracy)} "
            f"on {count_text(self.images)} test images"
        )

    __repr__ = __str__


@dataclass(frozen=True, repr=False)
class History(ShownAsTable):
    """All epochs of a job so far."""

    model: str
    parameters: int
    data: str
    images: int
    replicas: int
    global_batch: int
    steps_per_epoch: int
    start_seconds: float
    """Seconds of building, placing and tracing, once before the first step."""
    epochs: tuple[Epoch, ...]
    kind: Kind
    interrupted: bool = False

    @property
    def seconds(self) -> float:
        """Training alone, all epochs, without start and evaluation."""
        return sum(epoch.seconds for epoch in self.epochs)

    @property
    def images_per_second(self) -> float:
        """The throughput of the epochs."""
        return len(self.epochs) * self.images / self.seconds if self.epochs else float("nan")

    @property
    def accuracy(self) -> float:
        """On the test images, after the last epoch."""
        return self.epochs[-1].accuracy if self.epochs else float("nan")

    def time_to(self, accuracy: float) -> float | None:
        """Returns the seconds of training until an epoch ended with this accuracy, or None."""
        passed = 0.0
        for epoch in self.epochs:
            passed += epoch.seconds
            if epoch.accuracy >= accuracy:
                return passed
        return None

    def curves(self) -> Picture:
        """Returns a picture of the loss by epoch and the accuracy by seconds."""
        return curves([self])

    @property
    def title(self) -> str:
        """What trained on what."""
        replicas = "1 replica" if self.replicas == 1 else f"{self.replicas} replicas"
        return (
            f"{self.model} model ({count_text(self.parameters)} parameters) on {self.data}, "
            f"{replicas}, global batch {self.global_batch}"
        )

    @property
    def footer(self) -> str:
        """Throughput, the time of the start, and the kind."""
        end = " Interrupted: these are the finished epochs." if self.interrupted else ""
        return (
            f"{rate_text(self.images_per_second)}; start (build, place, trace) "
            f"{seconds_text(self.start_seconds)}; {self.kind}.{end}"
        )

    def table(self) -> Table:
        """Returns a row for each epoch."""
        from labkit.views.table import Table

        rows = [
            (str(i), seconds_text(e.seconds), f"{e.loss:.4f}", percent_text(e.accuracy))
            for i, e in enumerate(self.epochs, 1)
        ]
        head = ("epoch", "training time", "training loss", "test accuracy")
        return Table(head, rows, self.title, self.footer)


def curves(
    trainings: Sequence[History], names: Sequence[str] = (), target: float | None = None
) -> Picture:
    """Returns a picture of loss by epoch, and of accuracy by seconds with the accuracy to reach."""
    from labkit.views.figure import (
        INK,
        figure,
        legend_below,
        look,
        mark_target,
        picture,
        style,
        time_axis,
    )  # fmt: skip

    labels = list(names) or [
        f"{counted(one.replicas, 'replica')}, batch {one.global_batch}" for one in trainings
    ]
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
