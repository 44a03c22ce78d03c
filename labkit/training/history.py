"""What training a job gave, as plain data: one line an epoch, and what it was measured on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from labkit.kinds import Kind, count_text, percent_text, rate_text, seconds_text
from labkit.shown import ShownAsTable

if TYPE_CHECKING:
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
    """Building, placing and tracing, before the first step: paid once."""
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
        """Seconds of training until an epoch ended with this accuracy; None if none did."""
        passed = 0.0
        for epoch in self.epochs:
            passed += epoch.seconds
            if epoch.accuracy >= accuracy:
                return passed
        return None

    def curves(self) -> Any:
        """Loss by epoch and accuracy by seconds, as a picture."""
        from labkit.views.training_figure import curves

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
        """A row for each epoch."""
        from labkit.views.table import Table

        rows = [
            (str(i), seconds_text(e.seconds), f"{e.loss:.4f}", percent_text(e.accuracy))
            for i, e in enumerate(self.epochs, 1)
        ]
        head = ("epoch", "training time", "training loss", "test accuracy")
        return Table(head, rows, self.title, self.footer)
