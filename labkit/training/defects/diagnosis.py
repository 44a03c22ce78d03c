"""What a diagnosis is: the findings, in the order of the program, and how they are shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from labkit import plain

__all__ = ["DEFECTS", "Diagnosis", "Finding", "Severity"]

Severity = Literal["wrong result", "wrong time", "advice"]

# Every defect that labkit looks for, and what kind of one it is.
DEFECTS: dict[str, str] = {
    "clock": "a clock of CPU seconds, not of seconds",
    "wall clock": "a clock that can be set while it runs",
    "first epoch": "tracing and start-up inside the timed part",
    "timed evaluation": "evaluation inside the timed part",
    "timed preparation": "data or model prepared inside the timed part",
    "loss": "a loss for probabilities with logits, or the reverse",
    "labels": "a loss for one kind of labels with the other kind",
    "batch": "a batch that does not follow the number of replicas",
    "different batch": "runs that differ in their batch",
    "pipeline": "runs of which one shuffles and the other does not",
    "shuffle": "a shuffle that mixes less than it seems to",
    "float64": "input in double precision",
    "scope": "a model made or compiled outside the strategy's scope",
    "one run": "one run of each, and no idea of the noise",
    "Keras 3": "code of Keras 2 that Keras 3 refuses",
}

_LIMITS = f"labkit knows {len(DEFECTS)} defects, and reads a program without running it."
_ORDER = {"wrong result": 0, "wrong time": 1, "advice": 2}


@plain.stored
@dataclass(frozen=True)
class Finding:
    """One defect: where it is, what is written there, what that does, how to mend it."""

    defect: str
    severity: Severity
    where: tuple[str, ...]
    wrote: str
    does: str
    mend: str

    @property
    def place(self) -> str:
        """All the places, such as "lines 3 and 9"."""
        if len(self.where) == 1:
            return self.where[0]
        if all(one.startswith("line ") for one in self.where):
            numbers = [one.removeprefix("line ") for one in self.where]
            return f"lines {', '.join(numbers[:-1])} and {numbers[-1]}"
        return "; ".join(self.where)

    def __str__(self) -> str:
        return (
            f"{self.defect} ({self.severity}), {self.place}\n"
            f"  you wrote:  {self.wrote}\n  it does:    {self.does}\n  to mend it: {self.mend}"
        )


@plain.stored
@dataclass(frozen=True)
class Diagnosis:
    """What was found. True when there is a finding, like a list; as text it says so either way."""

    findings: tuple[Finding, ...]
    looked_at: tuple[str, ...]

    @staticmethod
    def of(found: Iterable[Finding], looked_at: tuple[str, ...]) -> Diagnosis:
        """The same finding in several places becomes one; wrong results come first."""
        merged: dict[tuple[str, str], Finding] = {}
        for one in found:
            key = (one.defect, one.does)
            before = merged.get(key)
            where = one.where if before is None else (*before.where, *one.where)
            first = before or one
            merged[key] = Finding(
                one.defect,
                one.severity,
                tuple(dict.fromkeys(where)),
                first.wrote,
                one.does,
                one.mend,
            )
        ordered = sorted(merged.values(), key=lambda one: _ORDER[one.severity])
        return Diagnosis(tuple(ordered), looked_at)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the defects, each once, those that spoil the result first."""
        return tuple(dict.fromkeys(one.defect for one in self.findings))

    def of_defect(self, name: str) -> tuple[Finding, ...]:
        """The findings of one defect."""
        return tuple(one for one in self.findings if one.defect == name)

    def __bool__(self) -> bool:
        return bool(self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    @property
    def summary(self) -> str:
        """How many, and in what."""
        looked = " and ".join(self.looked_at) or "nothing"
        if not self.findings:
            return f"No known defect found in {looked}. That is not a proof: {_LIMITS}"
        count = len(self.names)
        return f"{count} defect{'' if count == 1 else 's'} found in {looked}"

    def __str__(self) -> str:
        if not self.findings:
            return self.summary
        return "\n".join([self.summary, *(str(one) for one in self.findings)])

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        from labkit.views.table import table

        if not self.findings:
            return {"text/plain": str(self), "text/html": f"<p>{self.summary}</p>"}
        head = ("defect", "where", "you wrote", "what it does, and how to mend it")
        rows = [
            (f"{f.defect} ({f.severity})", f.place, f.wrote, f"{f.does} → {f.mend}")
            for f in self.findings
        ]
        footer = f"There may be others: {_LIMITS}"
        html = table(head, rows, self.summary, footer, prose=True)
        return {"text/plain": str(self), "text/html": html}
