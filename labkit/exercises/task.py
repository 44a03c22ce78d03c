"""A task is a question, a judge of its answers, hints, and a worked solution.

>>> from labkit.exercises.judges.answers import number
>>> task = Task("How many bits has a byte?", number(8), ("A power of two.",), "answer = 2**3",
...             why="Since about 1964.")
>>> task.check(8)
✓ Right. Since about 1964.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from labkit.exercises import blanks
from labkit.exercises.card import Help, card
from labkit.kinds import LabError

# Sign, first words, and the border on the left: at least 3:1 on white and on black.
LOOKS = {
    "right": ("✓", "Right.", "solid #009E73"),
    "wrong": ("✗", "Not yet.", "double #D55E00"),
    "elsewhere": ("○", "Not judged here.", "dotted #808080"),
    "open": ("○", "Not answered yet.", "dotted #808080"),
    "hint": ("→", "Hint", "dashed #0072B2"),
    "solution": ("★", "Solution.", "solid #0072B2"),
    "closed": ("○", "Not open yet.", "dotted #808080"),
}


class Unanswered(Exception):
    """Nothing was written yet, in a way that only the judge can see."""


class NotJudged(Exception):
    """What is missing here to judge an answer, and how to get it."""


class Wrong(LabError):
    """What is wrong with an answer; `trace` shows it."""

    def __init__(self, text: str, trace: Any = None) -> None:
        super().__init__(text)
        self.trace = trace


@dataclass(frozen=True)
class Task:
    """`judge(answer)` raises a LabError, or an AssertionError, that says what is wrong.

    Of a program that is right it returns the trace.
    """

    question: str
    judge: Callable[[Any], Any]
    hints: tuple[str, ...]
    solution: str
    """Code as it would stand in the cell, with the computation."""
    why: str
    difficulty: int = 1
    """From 1 to 3."""
    given: str = ""
    """What the cell came with, where that is no `...` but something to fix."""
    kept: int = 0
    """How many lines of the solution the cell came with, beside its `...`."""
    environment: str = ""
    """The environment of another framework whose ranks the judge needs: `judges.frameworks`."""
    slips: Mapping[Any, str] = field(default_factory=dict)
    """Usual wrong numbers, words, or changes of the solution (old, new), and why each is wrong."""
    name: str = ""
    """Under which progress is kept; the question, if there is none."""

    def check(self, answer: object) -> Outcome:
        """What the judge says to an answer; to a cell as it came: that nothing was written yet."""
        try:
            if blanks.is_untouched(answer, self.solution, self.kept):
                raise Unanswered
            return Outcome("right", self.why, trace=self.judge(answer))
        except Unanswered:
            return Outcome("open", f"Difficulty {self.difficulty} of 3. {self.question}")
        except NotJudged as missing:
            return Outcome("elsewhere", f"{missing}\nQuestion: {self.question}")
        except (Exception, SystemExit) as fault:  # noqa: BLE001 (a kernel survives any answer)
            said = isinstance(fault, (LabError, AssertionError)) and str(fault)
            own = (text for slip, text in self.slips.items() if _is(answer, slip))
            why = (f" {text}" for text in own if text not in f"{said}")
            text = f"{said or blanks.raised(fault, answer)}{next(why, '')}"
            text = f"{text}{blanks.where_left(answer)}\nQuestion: {self.question}"
            return Outcome("wrong", text, trace=getattr(fault, "trace", None))

    def is_given(self, answer: object) -> bool:
        """Whether the answer is what the cell came with."""
        return blanks.source(answer).strip() == self.given.strip() != ""


def _is(answer: Any, slip: Any) -> bool:
    if isinstance(slip, str):
        to = str if "\n" in slip else letters  # of a script every character counts
        return isinstance(answer, str) and to(answer) == to(slip)
    try:
        return math.isclose(answer, slip, rel_tol=0.01)
    except (TypeError, ValueError, OverflowError):
        return False


def letters(text: str) -> str:
    """A word in which case, spaces, "the" and a prefix such as MPI_ do not matter."""
    name = text.strip(" .").rpartition(".")[2].casefold()
    name = re.sub(r"^(an? |the |mpi[ _])+", "", name)
    return "".join(filter(str.isalnum, name)).removesuffix("strategy")


@dataclass(frozen=True)
class Outcome:
    """What became of an answer, or a hint, or a solution; true when an answer was right."""

    state: str
    text: str
    code: str = ""
    trace: Any = field(default=None, compare=False)
    """The run of a program."""
    calls: str = ""
    """Which calls help: for a terminal, where no card has buttons."""
    below: Help | None = field(default=None, compare=False)

    def __bool__(self) -> bool:
        return self.state == "right"

    def __repr__(self) -> str:
        sign, words, _ = LOOKS[self.state]
        text = "\n".join(filter(None, (self.text, self.calls)))
        return f"{sign} {words} {text}" + (f"\n\n{self.code}" if self.code else "")

    def _ipython_display_(self) -> None:
        from IPython.display import display

        html = card(LOOKS[self.state], self.text, self.code, self.below)
        display({"text/plain": repr(self), "text/html": html}, raw=True)  # type: ignore[no-untyped-call]
        if self.trace is not None:
            display(self.trace)  # type: ignore[no-untyped-call]
