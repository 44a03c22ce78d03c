"""A task is a question, a judge of its answers, a hint, and the reason that a right answer gets.

>>> from labkit.exercises.judges import number
>>> task = Task("How many bits has a byte?", number(8), "A power of two.", "Since about 1964.")
>>> task.check(8)
✓ Right. Since about 1964.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape
from typing import Any, Literal

from labkit.kinds import LabError

__all__ = ["Outcome", "Task", "Unanswered", "Wrong"]

# Sign, word, and the border on the left: its colour is at least 3:1 on white and on black.
LOOKS = {
    "right": ("✓", "Right.", "solid #009E73"),
    "wrong": ("✗", "Not yet.", "double #D55E00"),
    "open": ("○", "Not answered yet.", "dotted #808080"),
}


class Unanswered(Exception):
    """The answer still is the `...` that the cell came with."""


class Wrong(LabError):
    """What is wrong with an answer; `trace` shows it."""

    def __init__(self, text: str, trace: Any = None, *, hint: bool = True) -> None:
        super().__init__(text)
        self.trace, self.hint = trace, hint


@dataclass(frozen=True)
class Task:
    """`judge(answer)` raises `Unanswered`, or a LabError that says what is wrong.

    Of a program that is right it returns the trace.
    """

    question: str
    judge: Callable[[Any], Any]
    hint: str
    why: str

    def check(self, answer: object) -> Outcome:
        """What the judge says to an answer; `...` stands for none."""
        try:
            if answer is ...:
                raise Unanswered
            trace = self.judge(answer)
        except Unanswered:
            return Outcome("open", self.question)
        except LabError as fault:
            hint = f"Hint: {self.hint}\n" if getattr(fault, "hint", True) else ""
            text = f"{fault}\n{hint}Question: {self.question}"
            return Outcome("wrong", text, getattr(fault, "trace", None))
        return Outcome("right", self.why, trace)


@dataclass(frozen=True)
class Outcome:
    """What became of an answer, with the run of a program that shows it; true when it was right."""

    state: Literal["open", "right", "wrong"]
    text: str
    trace: Any = field(default=None, compare=False)

    def __bool__(self) -> bool:
        return self.state == "right"

    def __repr__(self) -> str:
        sign, word, _ = LOOKS[self.state]
        return f"{sign} {word} {self.text}"

    def _ipython_display_(self) -> None:
        from IPython.display import display

        sign, word, border = LOOKS[self.state]
        html = (
            f'<div role="status" style="border-left: 6px {border}; padding-left: 0.8em">'
            f'<span aria-hidden="true">{sign}</span> <strong>{word}</strong> '
            f"{escape(self.text).replace(chr(10), '<br>')}</div>"
        )
        display({"text/plain": repr(self), "text/html": html}, raw=True)  # type: ignore[no-untyped-call]
        if self.trace is not None:
            display(self.trace)  # type: ignore[no-untyped-call]
