"""A task: a question, a function that computes its answer, and a judge that gives nothing away."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from labkit.exercises.function_task import FunctionTask
from labkit.exercises.program_task import ProgramOutcome, ProgramTask
from labkit.exercises.showing import shown
from labkit.kinds import LabError

if TYPE_CHECKING:
    from labkit.exercises.written_task import WrittenTask

__all__ = ["Outcome", "Task", "check", "tasks"]


@dataclass(frozen=True)
class Task:
    """One question. `tolerance` is a share of the answer: 0.02 lets 2 % pass.

    `why` is shown once the answer is right.
    """

    question: str
    answer: Callable[[], float | str]
    tolerance: float
    hint: str
    unit: str = ""
    why: str = ""

    def judge(self, name: str, answer: object) -> Outcome:
        """What becomes of an answer."""
        question = f"{self.question} [{self.unit}]" if self.unit else self.question
        if answer is ...:
            return Outcome(name, "open", f"Not answered yet. {question}")
        truth = self.answer()
        right, hint = (
            _judged_words(answer, truth, self)
            if isinstance(truth, str)
            else _judged_number(answer, truth, self)
        )
        if right:
            return Outcome(name, "right", f"Right. {self.why}".rstrip())
        return Outcome(name, "wrong", f"Not yet. {hint}\n{question}")


@dataclass(frozen=True)
class Outcome:
    """What became of an answer, in words; true when it was right."""

    name: str
    state: Literal["open", "right", "wrong"]
    text: str

    def __bool__(self) -> bool:
        return self.state == "right"

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return shown(self.text)


def tasks(lecture: str) -> dict[str, Task | ProgramTask | FunctionTask | WrittenTask]:
    """All tasks of a lecture, by name.

    >>> "01.bytes_per_step" in tasks("01")
    True
    """
    name = f"labkit.exercises.lecture{lecture}"
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as fault:
        if fault.name != name:
            raise
        raise LabError(
            f"There are no exercises for lecture {lecture!r}. "
            "The name of a task begins with two digits, as in '01.bytes_per_step'."
        ) from None
    found: dict[str, Task | ProgramTask | FunctionTask | WrittenTask] = module.TASKS
    return found


def check(name: str, answer: object = ...) -> Outcome | ProgramOutcome:
    """Judge an answer. `...` stands for "not answered yet" and shows the question."""
    known = tasks(name.partition(".")[0])
    if name not in known:
        raise LabError(f"There is no task {name!r}. This lecture has: {', '.join(known)}.")
    return known[name].judge(name, answer)


def _judged_number(answer: object, truth: float, task: Task) -> tuple[bool, str]:
    unit = f" of {task.unit}" if task.unit else ""
    try:
        given = float(answer)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False, f"{answer!r} is not a number{unit}. Write answer = 123."
    except OverflowError:
        return False, f"That number is beyond all others. {task.hint}"
    if math.isnan(given):
        return False, f"nan is not a number{unit}. Look for a division by zero."
    if abs(given - truth) <= task.tolerance * abs(truth):
        return True, ""
    return False, f"{given:g} is too {'large' if given > truth else 'small'}. {task.hint}"


def _judged_words(answer: object, truth: str, task: Task) -> tuple[bool, str]:
    if not isinstance(answer, str):
        return False, f'{answer!r} is not a word in quotes. Write answer = "...".'
    # A full name such as tf.distribute.X is as good as X.
    given = _letters(answer.rpartition(".")[2])
    # CentralStorage means the same as CentralStorageStrategy.
    same = given.removesuffix("strategy") == _letters(truth).removesuffix("strategy")
    return same, f"{answer!r} is not it. {task.hint}"


def _letters(words: str) -> str:
    return "".join(letter for letter in words.casefold() if letter.isalnum())
