"""Questions in the notebooks that are answered in a cell and judged at once.

>>> print(tasks()["10.bytes_per_step"].check(4_799_528))
✓ Right. One gradient per parameter, four bytes each. The batch size does not matter.
"""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from labkit import environments
from labkit.exercises import attempts
from labkit.exercises.attempts import Attempts, Progress, Summary
from labkit.exercises.card import Help, checking
from labkit.exercises.lecture_tasks import personal, student, tasks
from labkit.exercises.task import Outcome, Task, Unanswered, Wrong
from labkit.exercises.text import load
from labkit.kinds import LabError


def check(task: str | Task, answer: object = ...) -> Outcome:
    """Judge an answer to a task, a lecture's by its name or one of your own; note the attempt."""
    key, called, found = _find(task)
    with checking(getattr(found.judge, "seconds", None)):
        outcome = found.check(answer)
    not_built = outcome.state == "elsewhere" and found.environment  # its solution is open at once
    if outcome.state == "open" or found.is_given(answer) or not_built:
        return replace(outcome, below=_help(key, found, outcome.state))

    def tried(before: Attempts) -> Attempts:
        return replace(before, tries=before.tries + 1, solved=before.solved or bool(outcome))

    after, note = attempts.change(key, tried)
    calls = ""
    if not outcome:
        more = after.hints < len(found.hints)
        next_step = f"labkit.hint({called}) gives a hint" if more else "You have seen all hints"
        calls = f"{next_step}; labkit.solution({called}) shows a solution."
    text, below = f"{outcome.text}\n{note}".strip(), _help(key, found, outcome.state)
    return replace(outcome, text=text, calls=calls, below=below)


def hint(task: str | Task) -> Outcome:
    """The next hint of a task, below those that it has given already."""
    key, called, found = _find(task)
    most = len(found.hints)
    after, note = attempts.change(key, lambda old: replace(old, hints=min(old.hints + 1, most)))
    lines = [f"{after.hints} of {most}.", *found.hints[: after.hints]]
    if after.hints == most:
        lines.append(f"This is the last hint. labkit.solution({called}) opens after an answer.")
    return Outcome("hint", "\n".join([*lines, note]).strip())


def solution(task: str | Task) -> Outcome:
    """A worked solution, once there was an answer; at once where none can be judged."""
    key, called, found = _find(task)
    progress, note = attempts.current()
    if not _is_open(found, progress.tasks.get(key, Attempts())):
        text = f"First check an answer of your own. labkit.hint({called}) helps."
        return Outcome("closed", f"{text} {note}".strip())
    return Outcome("solution", found.why, found.solution.strip())


def my_progress(folder: str | Path | None = None) -> Summary:
    """What you have solved and tried, by lecture; of the notebooks in another folder if given."""
    if folder is not None and not Path(folder).is_dir():
        raise LabError(f"{str(folder)!r} is not a folder. Give the folder of the notebooks.")
    file = attempts.FILE if folder is None else Path(folder, attempts.FILE.name)
    return attempts.summary(tasks(), file)


def _is_open(found: Task, done: Attempts) -> bool:
    """Whether the solution may be read."""
    judged = not found.environment or environments.find(found.environment).stamp
    return done.tries > 0 or not judged


def _help(key: str, found: Task, state: str) -> Help:
    """What the card of a task has below the verdict; a saved notebook shows no progress."""
    from labkit.views.live import listen, shows_live

    saved = os.environ.get("LABKIT_PICTURES") == "still"
    done = Progress() if saved else attempts.current()[0]
    lecture, here = _asked_with(key)
    solved = sum(name in done.tasks and done.tasks[name].solved for name in here)
    place = f"Task {here.index(key) + 1} of {len(here)}" if here else "A task"
    place += f" in lecture {lecture}" * lecture[:1].isdigit() + f", {solved} solved" * (solved > 0)
    place += "." if state == "open" else f". Difficulty {found.difficulty} of 3."
    mine = done.tasks.get(key, Attempts())
    opened = not saved and _is_open(found, mine)  # else it depends on what is built here
    solution = found.solution.strip() if opened else ""
    kernel = listen(_hint_was_opened) if shows_live() else ""
    return Help(key, place, found.hints, mine.hints, solution, kernel)


def _asked_with(key: str) -> tuple[str, list[str]]:
    """The number of a lecture, and its tasks as its notebook asks them; else those of a name."""
    lecture = key.partition(".")[0]
    for notebook in sorted(attempts.FILE.parent.glob("*.ipynb")):
        if notebook.name.startswith(lecture if lecture.isdigit() else "check_yourself"):
            names = attempts.asked_in(notebook)
            if key in names:
                return notebook.stem.partition("_")[0], names
    return lecture, [name for name in tasks() if name.startswith(f"{lecture}.")]


def _hint_was_opened(told: dict[str, Any]) -> None:
    hint = int(told["hint"])
    attempts.change(str(told["task"]), lambda old: replace(old, hints=max(old.hints, hint)))


def _find(task: str | Task) -> tuple[str, str, Task]:
    """Under which name progress is kept, what stands in a call of the student's, and the task."""
    if isinstance(task, Task):
        return f"own.{task.name or task.question}", "task", task
    known = tasks()
    if task in known:
        return task, f'"{task}"', personal(task)
    same = [one for one in known if one.partition(".")[0] == str(task).partition(".")[0]]
    names = f"This lecture has: {', '.join(same)}." if same else "The first is 00.kind."
    raise LabError(f"There is no task {task!r}. {names}")
