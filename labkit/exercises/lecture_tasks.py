"""The tasks of the lectures: a file of text for each notebook, with everybody's own numbers.

>>> print(personal("10.adam_memory", "ada").question)
A model has 77 billion parameters. How many GB do weights, gradients and Adam's two moments take, \
all in float32?
"""

import os
from functools import cache
from pathlib import Path
from types import EllipsisType

from labkit.exercises import text
from labkit.exercises.task import Task
from labkit.kinds import LabError

FOLDER = Path(__file__).parent / "lectures"
VARIABLE = "LABKIT_STUDENT"


@cache
def texts() -> dict[str, text.Text]:
    """Each task as it is written."""
    files = sorted(FOLDER.glob("*.md"))
    return {one.name: one for file in files for one in text.read(file)}


@cache
def tasks() -> dict[str, Task]:
    """All tasks by name: it begins with the two digits of a lecture, or with self."""
    return {
        name: task for file in sorted(FOLDER.glob("*.md")) for name, task in text.load(file).items()
    }


def personal(name: str, key: str | None = None) -> Task:
    """The task with the numbers of a key, by default of this process; without a key as it is."""
    key = (os.environ.get(VARIABLE, "") if key is None else key).strip().casefold()
    return texts()[name].task(key) if key and texts()[name].is_personal else tasks()[name]


def student(key: str | EllipsisType) -> str:
    """Say who you are: tasks with numbers of your own then have yours, until the kernel ends."""
    if isinstance(key, EllipsisType):
        return "No key yet: all tasks have the numbers of the lecture."
    if not key.strip():
        raise LabError(f"student() needs your key in quotes, got {key!r}.")
    os.environ[VARIABLE] = key
    own = sum(one.is_personal for one in texts().values())
    return f"The numbers of {own} tasks are those of {key.strip()!r} now."
