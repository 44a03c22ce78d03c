"""Questions in the notebooks that are answered in a cell and judged at once.

>>> print(tasks()["01.bytes_per_step"].check(4_799_528))
✓ Right. One gradient per parameter, four bytes each. The batch size does not matter.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from labkit import environments
from labkit.exercises import attempts, lectures
from labkit.exercises.attempts import Attempts, Summary
from labkit.exercises.task import Outcome, Task
from labkit.kinds import LabError

__all__ = ["Outcome", "Task", "check", "hint", "my_progress", "solution", "tasks"]


def tasks() -> dict[str, Task]:
    """All tasks by name; the name begins with the two digits of a lecture."""
    modules = (
        import_module(one.name) for one in iter_modules(lectures.__path__, f"{lectures.__name__}.")
    )
    return {name: task for module in modules for name, task in module.TASKS.items()}


def check(name: str, answer: object = ...) -> Outcome:
    """Judge an answer, and note the attempt. `...` stands for "not answered yet"."""
    task = _task(name)
    outcome = task.check(answer)
    if outcome.state in ("open", "elsewhere") or task.is_given(answer):
        return outcome

    def tried(before: Attempts) -> Attempts:
        return replace(before, tries=before.tries + 1, solved=before.solved or bool(outcome))

    after, note = attempts.change(name, tried)
    if not outcome:
        more = after.hints < len(task.hints)
        next_step = f'labkit.hint("{name}") gives a hint' if more else "You have seen all hints"
        note = f'{next_step}; labkit.solution("{name}") shows a solution.\n{note}'.strip()
    return replace(outcome, text=f"{outcome.text}\n{note}".strip())


def hint(name: str) -> Outcome:
    """The next hint of a task, below those that it has given already."""
    task = _task(name)
    most = len(task.hints)
    after, note = attempts.change(name, lambda old: replace(old, hints=min(old.hints + 1, most)))
    lines = [f"{after.hints} of {most}.", *task.hints[: after.hints]]
    if after.hints == most:
        lines.append(f'This is the last hint. labkit.solution("{name}") opens after an answer.')
    return Outcome("hint", "\n".join([*lines, note]).strip())


def solution(name: str) -> Outcome:
    """A worked solution, once there was an answer; at once where none can be judged."""
    task = _task(name)
    progress, note = attempts.current()
    judged = not task.environment or environments.find(task.environment).stamp
    if judged and not progress.tasks.get(name, Attempts()).tries:
        text = f'First check an answer of your own. labkit.hint("{name}") helps.'
        return Outcome("closed", f"{text} {note}".strip())
    return Outcome("solution", task.why, task.solution.strip())


def my_progress(folder: str | Path | None = None) -> Summary:
    """What you have solved and tried, by lecture; of the notebooks in another folder if given."""
    if folder is not None and not Path(folder).is_dir():
        raise LabError(f"{str(folder)!r} is not a folder. Give the folder of the notebooks.")
    file = attempts.FILE if folder is None else Path(folder, attempts.FILE.name)
    return attempts.summary(tasks(), file)


def _task(name: str) -> Task:
    known = tasks()
    if name in known:
        return known[name]
    same = [one for one in known if one.partition(".")[0] == str(name).partition(".")[0]]
    names = f"This lecture has: {', '.join(same)}." if same else "The first is 00.kind."
    raise LabError(f"There is no task {name!r}. {names}")
