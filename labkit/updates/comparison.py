"""Runs on one problem side by side: over updates, and over seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from labkit.arguments import number
from labkit.kinds import Kind, LabError, count_text, rate_text, seconds_text
from labkit.shown import ShownAsTable

if TYPE_CHECKING:
    from labkit.updates.record import Updates
    from labkit.views.figure import Picture
    from labkit.views.table import Table


@dataclass(frozen=True, repr=False)
class Comparison(ShownAsTable):
    """Runs under their names, and a loss as their common target."""

    runs: tuple[Updates, ...]
    names: tuple[str, ...]
    target: float
    kind: Kind

    def picture(self) -> Picture:
        """Returns the loss of each over updates, and over seconds."""
        from labkit.updates.page.pictures import curves

        return curves(self.runs, self.names, self.kind, self.target)

    def table(self) -> Table:
        """Returns a row for each run."""
        from labkit.views.table import Table

        head = ("", "updates", "time", "throughput", "mean staleness", "final loss",
                f"to a loss of {self.target:.3g}")  # fmt: skip
        rows = [
            (
                name,
                count_text(run.updates),
                seconds_text(run.seconds),
                rate_text(run.updates_per_second, "updates"),
                f"{run.mean_staleness:.2f}",
                f"{run.losses[-1].loss:.4g}",
                _to_target(run, self.target),
            )
            for name, run in zip(self.names, self.runs, strict=True)
        ]
        return Table(head, rows, f"Training {self.runs[0].problem}", f"{self.kind}.")


def compared(runs: tuple[Updates, ...], target: float | None) -> Comparison:
    """Returns the comparison of runs on the same problem."""
    problems = sorted({run.problem for run in runs})
    if len(problems) > 1 or not problems[0]:
        found = " / ".join(problem or "no problem" for problem in problems)
        raise LabError(f"Losses can be compared on one problem, got runs on {found}.")
    if target is None:
        target = max(min(one.loss for one in run.losses) for run in runs)
    kind = next((run.kind for run in runs if run.kind.name == "measured"), runs[0].kind)
    return Comparison(runs, _names(runs), number("target", target, at_least=0), kind)


def _names(runs: Sequence[Updates]) -> tuple[str, ...]:
    """Returns the mode of each run, and what else tells them apart."""
    names = [run.name for run in runs]
    if len({run.kind.name for run in runs}) > 1:
        names = [f"{name}, {run.kind.name}" for name, run in zip(names, runs, strict=True)]
    counts = [f"{run.workers} workers" for run in runs]
    rates = [f"learning rate {run.settings.learning_rate:g}" for run in runs]
    places = [f"run {place}" for place in range(1, len(runs) + 1)]
    for column in (counts, rates, places):
        if len(set(names)) < len(names) and len(set(column)) > 1:
            names = [f"{name}, {words}" for name, words in zip(names, column, strict=True)]
    return tuple(names)


def _to_target(run: Updates, target: float) -> str:
    first = run.reached(target)
    if first is None:
        return "never"
    return f"{count_text(first.version)} updates, {seconds_text(first.seconds)}"
