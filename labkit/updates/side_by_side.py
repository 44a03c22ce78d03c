"""Runs beside one another: who makes more updates, whose bring more, and who is done first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from labkit import plain
from labkit.kinds import Kind, LabError, count_text, rate_text, seconds_text
from labkit.updates.asked import number
from labkit.updates.record import Updates

if TYPE_CHECKING:
    from labkit.views.figure import Picture

__all__ = ["Compared", "compare"]

HEAD = ("", "updates", "time", "updates a second", "mean staleness", "loss at the end")


@plain.stored
@dataclass(frozen=True)
class Compared:
    """Some runs on one problem, each under its name, and a loss that all of them are to reach."""

    runs: tuple[Updates, ...]
    names: tuple[str, ...]
    target: float
    kind: Kind

    def picture(self) -> Picture:
        """The loss of each over updates, and over seconds."""
        from labkit.views.updates_figure import curves

        return curves(self.runs, self.names, self.kind, self.target)

    def rows(self) -> list[tuple[str, ...]]:
        """A row for each run: how fast, how stale, how far, and the way to the target."""
        return [
            (
                name,
                count_text(run.updates),
                seconds_text(run.seconds),
                rate_text(run.updates_per_second, "updates"),
                f"{run.mean_staleness:.2f}",
                f"{run.losses[-1].loss:.4g}",
                _way(run, self.target),
            )
            for name, run in zip(self.names, self.runs, strict=True)
        ]

    def __str__(self) -> str:
        head = (*HEAD, f"to a loss of {self.target:.3g}")
        table = [head, *self.rows()]
        widths = [max(len(row[i]) for row in table) for i in range(len(head))]
        lines = [
            "   ".join(
                cell.ljust(wide) if i == 0 else cell.rjust(wide)
                for i, (cell, wide) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in table
        ]
        return "\n".join([*lines, f"{self.kind}."])

    __repr__ = __str__

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from labkit.views.table import table

        head = (*HEAD, f"to a loss of {self.target:.3g}")
        title = f"Training {self.runs[0].problem}"
        html = table(head, self.rows(), caption=title, footer=f"{self.kind}.")
        return {"text/plain": str(self), "text/html": html}


def compare(*runs: Updates, names: Sequence[str] = (), target: float | None = None) -> Compared:
    """Some runs on the same problem, side by side.

    >>> bowl = labkit.updates.Quadratic()                                    # doctest: +SKIP
    >>> compare(simulate(bowl, mode="sync"), simulate(bowl, mode="async"))   # doctest: +SKIP

    Without a target it is the loss that even the slowest learner has reached.
    """
    for run in runs:
        if not isinstance(run, Updates):
            raise _no_run(run)
        if not run.losses:
            raise LabError(
                "A run without a problem has no loss to compare. Simulate it with one, such as "
                "labkit.updates.Quadratic()."
            )
    if len(runs) < 2:
        raise LabError(f"A comparison needs two runs or more, not {len(runs)}.")
    if len({run.problem for run in runs}) > 1:
        apart = " / ".join(sorted({run.problem for run in runs}))
        raise LabError(
            f"These runs trained different things: {apart}. "
            "Losses can be compared only on one problem."
        )
    if not _words(names):
        raise LabError(f'names={names!r} are not words. Write names=["one", "two"].')
    named = tuple(names) or _names(runs)
    if len(named) != len(runs):
        raise LabError(f"{len(runs)} runs need {len(runs)} names, not {len(named)}: {named!r}.")
    if target is None:
        target = max(min(one.loss for one in run.losses) for run in runs)
    kinds = {run.kind.name: run.kind for run in runs}
    kind = kinds.get("measured") or runs[0].kind
    return Compared(tuple(runs), named, number("target", target, 0.5), kind)


def _no_run(given: Any) -> LabError:
    what = repr(given) if isinstance(given, (str, int, float)) else f"A {type(given).__name__}"
    return LabError(
        f"{what} is no run. Pass what simulate or train has given back, one after the other: "
        "compare(one, two)."
    )


def _words(names: Any) -> bool:
    """Whether these are words, and not letters of one."""
    listed = isinstance(names, Sequence) and not isinstance(names, str)
    return listed and all(isinstance(one, str) for one in names)


def _names(runs: Sequence[Updates]) -> tuple[str, ...]:
    """How each trained, with what tells it from the others of the same way."""
    names = [run.name for run in runs]
    if len({run.kind.name for run in runs}) > 1:
        names = [f"{name}, {run.kind.name}" for name, run in zip(names, runs, strict=True)]
    for what in ("workers", "learning_rate"):
        values = [getattr(run, what) for run in runs]
        if len(set(names)) < len(names) and len(set(values)) > 1:
            unit = "workers" if what == "workers" else "learning rate"
            names = [
                f"{name}, {value:g} {unit}" if what == "workers" else f"{name}, {unit} {value:g}"
                for name, value in zip(names, values, strict=True)
            ]
    if len(set(names)) < len(names):
        names = [f"{name} ({place})" for place, name in enumerate(names, 1)]
    return tuple(names)


def _way(run: Updates, target: float) -> str:
    passed, updates = run.time_to(target), run.updates_to(target)
    if passed is None or updates is None:
        return "never"
    return f"{count_text(updates)} updates, {seconds_text(passed)}"
