"""Questions in the notebooks that are answered in a cell and judged at once.

>>> print(check("01.bytes_per_step", 4_799_528))
✓ Right. One gradient per parameter, four bytes each. The batch size does not matter.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from labkit.exercises.task import Outcome, Task
from labkit.kinds import LabError

__all__ = ["Outcome", "Task", "check", "tasks"]


def tasks(lecture: str) -> dict[str, Task]:
    """All tasks of a lecture, by name."""
    module = f"labkit.exercises.lectures.lecture{lecture}"
    if find_spec(module) is None:
        raise LabError(
            f"There are no exercises for lecture {lecture!r}. "
            "The name of a task begins with two digits, as in '01.bytes_per_step'."
        )
    found: dict[str, Task] = import_module(module).TASKS
    return found


def check(name: str, answer: object = ...) -> Outcome:
    """Judge an answer. `...` stands for "not answered yet" and shows the question."""
    if not isinstance(name, str):
        raise LabError(
            f"check needs a task's name, as in check('01.adam_memory', answer), got {name!r}."
        )
    known = tasks(name.partition(".")[0])
    if name not in known:
        raise LabError(f"There is no task {name!r}. This lecture has: {', '.join(known)}.")
    return known[name].check(answer)
