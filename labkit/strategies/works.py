"""What works here: the table that is made by running every strategy, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from labkit import plain
from labkit.kinds import Kind, seconds_text

__all__ = ["SAME", "Row", "Works"]

SAME = 1e-6  # float32 has seven digits, and replicas add in another order

HEAD = ("strategy", "placed on", "processes", "runs", "works", "from one device", "time")


@plain.stored
@dataclass(frozen=True)
class Row:
    """One strategy that was run: whether it works, how far it ended from one device, or why not."""

    strategy: str
    placed: str
    processes: int
    what: str
    works: bool
    difference: float | None
    """The largest difference of a weight from one device's; None where there is none to expect."""
    seconds: float
    """From the moment when all its processes were there to the end of the last."""
    why: str
    """Why it does not work; empty when it does."""

    @property
    def name(self) -> str:
        """What ran, on what, in words.

        >>> Row("Mirrored", "2 replicas", 1, "model.fit", True, 0.0, 1.0, "").name
        'Mirrored (2 replicas), model.fit'
        """
        return f"{self.strategy} ({self.placed}), {self.what}"

    def cells(self, note: int = 0) -> tuple[str, ...]:
        """The row in words, under `HEAD`; `note` is the number under which it says why not."""
        return (
            self.strategy,
            self.placed,
            str(self.processes),
            self.what,
            "yes" if self.works else f"no ({note})",
            "–" if self.difference is None else _apart(self.difference),
            seconds_text(self.seconds),
        )


@plain.stored
@dataclass(frozen=True)
class Works:
    """Every strategy that was run here and now, with the installed versions."""

    rows: tuple[Row, ...]
    steps: int
    batch: int
    versions: str
    kind: Kind

    def row(self, strategy: str, what: str = "one step") -> Row:
        """The first row of a strategy.

        >>> works.row("MultiWorkerMirrored", "model.fit").why       # doctest: +SKIP
        """
        found = [row for row in self.rows if (row.strategy, row.what) == (strategy, what)]
        if not found:
            names = ", ".join(dict.fromkeys(row.strategy for row in self.rows))
            raise KeyError(f"no {strategy!r} with {what!r} among {names}")
        return found[0]

    @property
    def failures(self) -> tuple[Row, ...]:
        """The rows that do not work."""
        return tuple(row for row in self.rows if not row.works)

    def title(self) -> str:
        """What was run."""
        return (
            f"Strategies: the dense model, SGD, {self.steps} steps of {self.batch} images, "
            f"in processes of their own; {self.versions}"
        )

    def footer(self) -> str:
        """When a row counts as working, and the kind."""
        return (
            f"Works: it ran, all workers ended with the same weights, and they are those of one "
            f"device to {SAME:.0e} (where a difference is shown). {self.kind}."
        )

    def rows_in_words(self) -> list[tuple[str, ...]]:
        """Each row's cells; those that do not work are numbered, as their reasons are."""
        notes = {id(row): number for number, row in enumerate(self.failures, 1)}
        return [row.cells(notes.get(id(row), 0)) for row in self.rows]

    def reasons(self) -> list[str]:
        """Why each of the failures does not work."""
        return [f"({n}) {row.name}: {row.why}" for n, row in enumerate(self.failures, 1)]

    def __str__(self) -> str:
        lines = [HEAD, *self.rows_in_words()]
        wide = [max(len(line[i]) for line in lines) for i in range(len(HEAD))]
        shown = ["  ".join(c.ljust(w) for c, w in zip(line, wide, strict=True)) for line in lines]
        return "\n".join(
            [self.title(), *(line.rstrip() for line in shown), *self.reasons(), self.footer()]
        )

    __repr__ = __str__

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from labkit.views.table import table

        # In a column of the table, sentences would push the others out of the page.
        under = "\n".join([*self.reasons(), self.footer()])
        rows = [
            (*cells[:-1], cells[-1].replace(" ", "\N{NO-BREAK SPACE}"))
            for cells in self.rows_in_words()
        ]
        html = table(HEAD, rows, caption=self.title(), footer=under, prose=True)
        return {"text/plain": str(self), "text/html": html}


def _apart(difference: float) -> str:
    return "0" if difference == 0 else f"{difference:.0e}"
