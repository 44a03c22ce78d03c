"""What a fault drill leaves behind: what was done to whom, what the others said, how it ended."""

from __future__ import annotations

from dataclasses import dataclass

from labkit import plain
from labkit.kinds import Kind, seconds_text

__all__ = ["Drill", "Moment"]


@plain.stored
@dataclass(frozen=True)
class Moment:
    """Something that happened: seconds after the start, to whom, what."""

    seconds: float
    who: str
    what: str


@plain.stored
@dataclass(frozen=True, repr=False)
class Drill:
    """A fault that was caused on purpose, live, and what the strategy made of it."""

    fault: str
    strategy: str
    victim: str
    """Who it was done to: "worker 1"."""
    at: float
    """When it was done, in seconds after the start."""
    noticed: float | None
    """Seconds from the order to do it until another process complained; None: nobody did."""
    went_on: bool
    """Whether the training reached its end all the same."""
    result: str
    numbers: dict[str, float]
    """What the result's sentences are made from."""
    timeline: tuple[Moment, ...]
    kind: Kind

    def title(self) -> str:
        """What was drilled."""
        return f"Drill: {_FAULTS[self.fault]}, {self.strategy}"

    def verdict(self) -> str:
        """The outcome, in two or three sentences."""
        went = "Training went on." if self.went_on else "Training stopped."
        if self.fault == "restart":
            went = "Training began again from its checkpoint." if self.went_on else went
        after = "" if self.noticed is None else f" Noticed after {seconds_text(self.noticed)}."
        return f"{went}{after} {self.result}"

    def rows(self) -> list[tuple[str, str, str]]:
        """The timeline in words."""
        return [(f"{m.seconds:.2f} s", m.who, m.what) for m in self.timeline]

    def __repr__(self) -> str:
        rows = self.rows()
        wide = [max(len(row[column]) for row in rows) for column in (0, 1)]
        lines = [f"{a.rjust(wide[0])}  {b.ljust(wide[1])}  {c}" for a, b, c in rows]
        return "\n".join([self.title(), *lines, self.verdict(), str(self.kind)])

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        from labkit.views.table import table

        html = table(
            ("when", "who", "what"), self.rows(), caption=self.title(),
            footer=f"{self.verdict()}\n{self.kind}", prose=True,
        )  # fmt: skip
        return {"text/plain": repr(self), "text/html": html}


_FAULTS = {
    "kill": "a process is killed",
    "hang": "a process hangs",
    "slow": "a worker becomes slow",
    "restart": "begin again from a checkpoint",
}
