"""A task that is answered with a program: run on several numbers of ranks, proved, counted, shown.

>>> from labkit.collectives import programs
>>> from labkit.exercises import check
>>> check("06.tree_broadcast", programs.broadcast).state
'right'
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from labkit.exercises.showing import shown
from labkit.kinds import LabError, bytes_text

__all__ = ["ProgramOutcome", "ProgramTask", "Target"]

# A program of an exercise is done in milliseconds; one that is not runs in circles.
DEADLINE = 10.0
REBOUND = (
    "No rank's buffer has changed. buffer = x only gives x that name; buffer[:] = x writes into "
    "the buffer.\n"
)


@dataclass(frozen=True)
class Target:
    """An upper bound on something that a run counts.

    `sentence` has the places {count} and {limit}.
    """

    sentence: str
    count: Callable[[Any], float]
    limit: Callable[[Any], float]
    written: Callable[[float], str] = "{:g}".format

    def missed(self, run: Any) -> str:
        """What is too much about a run, or nothing."""
        count, limit = float(self.count(run)), float(self.limit(run))
        # A modelled time is a sum in some order: its last digits are nobody's fault.
        if count <= limit * (1 + 1e-9):
            return ""
        return self.sentence.format(count=self.written(count), limit=self.written(limit))


@dataclass(frozen=True)
class ProgramTask:
    """One program to write: program(comm, buffer) works in place on every rank.

    It is run on each number of ranks with few and with many elements, and must be the collective
    every time. Only then do the targets count, on `shown` ranks. `why` is shown in the end.
    """

    question: str
    collective: str
    hint: str
    why: str
    ranks: tuple[int, ...] = (2, 3, 4, 5, 8, 1)
    elements: tuple[Callable[[int], int], ...] = (lambda n: n, lambda n: 2 * n + 1, lambda _: 1)
    targets: tuple[Target, ...] = ()
    shown: int = 8
    shown_elements: int = 0  # 0: as many as there are ranks

    def judge(self, name: str, answer: object) -> ProgramOutcome:
        """What becomes of a program."""
        if answer is ...:
            return self._open(name)
        if not callable(answer):
            text = f"{answer!r} is no function. Hand in the function itself, without brackets."
            return self._wrong(name, text)
        silent = True
        for ranks in self.ranks:
            for count in self.elements:
                try:
                    run = self._run(answer, ranks, count(ranks))
                except LabError as fault:
                    return self._wrong(name, f"On {_ranks(ranks)}: {fault}")
                silent = silent and not run.calls
                if silent and ranks > 1 and _untouched(run):
                    return self._open(name)
                try:
                    verdict = run.check(self.collective)
                except LabError as fault:
                    return self._wrong(name, f"On {_ranks(ranks)}: {fault}", run)
                if not verdict:
                    elements = f"{count(ranks)} element{'s' if count(ranks) > 1 else ''}"
                    note = "" if run.note or not _untouched(run) else REBOUND
                    return self._wrong(name, f"{verdict}\n{note}Each rank had {elements}.", run)
        return self._counted(name, self._run(answer, self.shown, self.shown_elements or self.shown))

    def _run(self, program: Callable[..., Any], ranks: int, count: int) -> Any:
        import numpy as np

        from labkit import collectives

        whole = np.arange(1.0, ranks * count + 1).reshape(ranks, count)
        return collectives.run(program, list(whole), deadline=DEADLINE)

    def _counted(self, name: str, run: Any) -> ProgramOutcome:
        missed = [text for target in self.targets if (text := target.missed(run))]
        if missed:
            text = f"It is correct. But on {_ranks(run.ranks)} {' And '.join(missed)}"
            return self._wrong(name, text, run)
        return ProgramOutcome(name, "right", f"Right. {self.why}\n{_counts(run)}", run)

    def _open(self, name: str) -> ProgramOutcome:
        return ProgramOutcome(name, "open", f"Not answered yet. {self.question}")

    def _wrong(self, name: str, text: str, run: Any = None) -> ProgramOutcome:
        seen = f"\n{_counts(run)}" if run is not None else ""
        return ProgramOutcome(name, "wrong", f"Not yet. {text}\nHint: {self.hint}{seen}", run)


@dataclass(frozen=True)
class ProgramOutcome:
    """What became of a program, in words, with the run that shows it; true when it was right."""

    name: str
    state: Literal["open", "right", "wrong"]
    text: str
    run: Any = field(default=None, repr=False, compare=False)

    def __bool__(self) -> bool:
        return self.state == "right"

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return shown(self.text)

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(self._repr_mimebundle_(), raw=True)  # type: ignore[no-untyped-call]
        if self.run is not None:
            display(self.run.player())  # type: ignore[no-untyped-call]


def _untouched(run: Any) -> bool:
    return bool(run.given == run.left)


def _ranks(count: int) -> str:
    return f"{count} rank{'s' if count > 1 else ''}"


def _counts(run: Any) -> str:
    """One line of what a run took."""
    messages, steps = len(run.messages), run.steps
    return (
        f"Your run on {_ranks(run.ranks)}: {messages} message{'s' if messages != 1 else ''} in "
        f"{steps} step{'s' if steps != 1 else ''}; the busiest rank sends "
        f"{bytes_text(max(run.bytes_sent))} and receives {bytes_text(max(run.bytes_received))}."
    )
