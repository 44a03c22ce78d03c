"""Which kind of parallelism follows from a model, its data and a machine, and why not another.

>>> from labkit.memory import Data, Machine, Model
>>> print(choose(Model(101_770), Data(60_000), Machine(16e9, devices=2)).choice)
Mirrored, one machine
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from labkit.kinds import Kind, LabError, modelled
from labkit.memory.footprint import Footprint
from labkit.memory.pictures import decision_tree
from labkit.memory.questions import CHOICES, FIRST, QUESTIONS, Data, Facts, Machine, Model
from labkit.plain import stored

if TYPE_CHECKING:
    from labkit.views.figure import Picture

__all__ = ["Decision", "Rejected", "choose"]


@dataclass(frozen=True)
class Rejected:
    """A choice that was not taken, and the fact that spoke against it."""

    choice: str
    reason: str


@stored
@dataclass(frozen=True)
class Decision:
    """The choice, the facts that led to it, and what each other choice failed on."""

    choice: str
    what: str
    strategy: str
    lecture: int | None
    reasons: tuple[str, ...]
    rejected: tuple[Rejected, ...]
    footprint: Footprint
    answers: tuple[tuple[str, bool], ...]
    kind: Kind

    def picture(self) -> Picture:
        """The decision tree with the path that these facts took."""
        return decision_tree(self.answers)

    def _taught(self) -> str:
        return "a later lecture" if self.lecture is None else f"lecture {self.lecture:02d}"

    def _grouped(self) -> list[tuple[str, str]]:
        groups: dict[str, list[str]] = {}
        for other in self.rejected:
            groups.setdefault(other.reason, []).append(other.choice)
        return [("; ".join(names), reason) for reason, names in groups.items()]

    def __str__(self) -> str:
        return "\n".join(
            [
                f"{self.choice} ({self._taught()})",
                self.what,
                f"In TensorFlow: {self.strategy}",
                "Because:",
                *(f"  {reason}" for reason in self.reasons),
                "Not:",
                *(f"  {names}. {reason}" for names, reason in self._grouped()),
                str(self.kind),
            ]
        )

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        from labkit.views.table import table

        because = "".join(f"<li>{escape(reason)}</li>" for reason in self.reasons)
        others = table(("not", "because"), self._grouped())
        html = (
            f"<p><strong>{escape(self.choice)}</strong> ({self._taught()}). {escape(self.what)}<br>"
            f"In TensorFlow: {escape(self.strategy)}</p>"
            f"<p>Because:</p><ol>{because}</ol>"
            f"<details><summary>Why not another</summary>{others}</details>"
            f"<p><em>{escape(str(self.kind))}</em></p>"
        )
        return {"text/plain": str(self), "text/html": html}


def choose(model: Model, data: Data, machine: Machine) -> Decision:
    """Answer the questions from the first with these facts, and keep the reasons."""
    for value, wanted in ((model, Model), (data, Data), (machine, Machine)):
        if not isinstance(value, wanted):
            raise LabError(f"choose(Model(...), Data(...), Machine(...)) is needed, got {value!r}.")
    facts = Facts(model, data, machine)
    answers: list[tuple[str, bool]] = []
    key = FIRST
    while key in QUESTIONS:
        answers.append((key, QUESTIONS[key].holds(facts)))
        key = QUESTIONS[key].yes if answers[-1][1] else QUESTIONS[key].no
    # Another choice is rejected by the question at which its path leaves the one taken.
    against = {
        end: next(question for question, answer in answers if (question, not answer) in path)
        for path, end in _paths(FIRST)
        if end != key
    }
    step = {
        "accumulate": lambda: facts.step(facts.largest_batch),
        "sharded": facts.sharded,
        "pipeline": facts.sharded,
        "tensor": facts.layers_split,
        "nothing": facts.layers_split,
    }
    choice = CHOICES[key]
    return Decision(
        choice=choice.name,
        what=choice.what,
        strategy=choice.strategy,
        lecture=choice.lecture,
        reasons=tuple(QUESTIONS[question].evidence(facts) for question, _ in answers),
        rejected=tuple(
            Rejected(CHOICES[end].name, QUESTIONS[question].evidence(facts))
            for end, question in against.items()
        ),
        footprint=step.get(key, facts.step)(),
        answers=tuple(answers),
        kind=modelled(
            "byte counts and link speeds, nine tenths of a device's memory taken as usable; "
            "nothing was timed"
        ),
    )


def _paths(key: str) -> Iterator[tuple[tuple[tuple[str, bool], ...], str]]:
    """Every path through the table from `key`: the answers, and the choice at its end."""
    if key in CHOICES:
        yield (), key
        return
    for answer, after in ((True, QUESTIONS[key].yes), (False, QUESTIONS[key].no)):
        for rest, end in _paths(after):
            yield ((key, answer), *rest), end
