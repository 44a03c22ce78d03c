"""Which kind of training follows from a model, its data and a machine, and why not another.

>>> from labkit.memory.facts import Data, Machine, Model
>>> print(choose(Model(101_770), Data(60_000), Machine(16e9, devices=2)).choice)
Mirrored, one machine
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from labkit.kinds import Kind, LabError, modelled
from labkit.memory.facts import Data, Facts, Machine, Model
from labkit.memory.footprint import Footprint
from labkit.memory.questions import CHOICES, QUESTIONS, path, routes
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
        """The decision tree with the way that these facts took."""
        from labkit.memory.pictures import decision_tree

        return decision_tree(self)

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
    """Walk the table of questions with these facts, and say why at every turn."""
    for name, value, wanted in (
        ("model", model, Model),
        ("data", data, Data),
        ("machine", machine, Machine),
    ):
        if not isinstance(value, wanted):
            raise LabError(
                f"choose needs a {wanted.__name__} as its {name}, not {value!r}. "
                f"Write labkit.memory.{wanted.__name__}(...)."
            )
    facts = Facts(model, data, machine)
    answers = path(facts)
    last, yes = answers[-1]
    taken = QUESTIONS[last].yes if yes else QUESTIONS[last].no
    choice = CHOICES[taken]
    return Decision(
        choice=choice.name,
        what=choice.what,
        strategy=choice.strategy,
        lecture=choice.lecture,
        reasons=tuple(QUESTIONS[key].evidence(facts) for key, _ in answers),
        rejected=_rejected(facts, answers, taken),
        footprint=_footprint(facts, taken),
        answers=answers,
        kind=modelled(
            "byte counts and link speeds, nine tenths of a device's memory taken as usable; "
            "nothing was timed"
        ),
    )


def _rejected(
    facts: Facts, answers: tuple[tuple[str, bool], ...], taken: str
) -> tuple[Rejected, ...]:
    out = []
    for route, end in routes():
        if end == taken:
            continue
        turn = next(key for key, answer in answers if (key, not answer) in route)
        out.append(Rejected(CHOICES[end].name, QUESTIONS[turn].evidence(facts)))
    return tuple(out)


def _footprint(facts: Facts, taken: str) -> Footprint:
    if taken == "accumulate":
        return facts.step(facts.largest_batch)
    if taken in ("sharded", "pipeline"):
        return facts.sharded()
    if taken in ("tensor", "nothing"):
        return facts.layers_split()
    return facts.step()
