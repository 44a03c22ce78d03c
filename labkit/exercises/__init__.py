"""Questions in the notebooks that are answered in a cell and judged at once.

>>> print(tasks()["01.bytes_per_step"].check(4_799_528))
✓ Right. One gradient per parameter, four bytes each. The batch size does not matter.
"""

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from labkit import environments
from labkit.exercises import attempts, lectures
from labkit.exercises.attempts import Attempts, Summary
from labkit.exercises.task import Outcome, Task, Unanswered, Wrong
from labkit.kinds import LabError


def tasks() -> dict[str, Task]:
    """All tasks by name; the name begins with the two digits of a lecture."""
    modules = (
        import_module(one.name) for one in iter_modules(lectures.__path__, f"{lectures.__name__}.")
    )
    return {name: task for module in modules for name, task in module.TASKS.items()}


def check(task: str | Task, answer: object = ...) -> Outcome:
    """Judge an answer to a task, a lecture's by its name or one of your own; note the attempt."""
    key, called, found = _find(task)
    outcome = found.check(answer)
    not_built = outcome.state == "elsewhere" and found.environment  # its solution is open at once
    if outcome.state == "open" or found.is_given(answer) or not_built:
        return outcome

    def tried(before: Attempts) -> Attempts:
        return replace(before, tries=before.tries + 1, solved=before.solved or bool(outcome))

    after, note = attempts.change(key, tried)
    if not outcome:
        more = after.hints < len(found.hints)
        next_step = f"labkit.hint({called}) gives a hint" if more else "You have seen all hints"
        note = f"{next_step}; labkit.solution({called}) shows a solution.\n{note}".strip()
    return replace(outcome, text=f"{outcome.text}\n{note}".strip())


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
    judged = not found.environment or environments.find(found.environment).stamp
    if judged and not progress.tasks.get(key, Attempts()).tries:
        text = f"First check an answer of your own. labkit.hint({called}) helps."
        return Outcome("closed", f"{text} {note}".strip())
    return Outcome("solution", found.why, found.solution.strip())


def my_progress(folder: str | Path | None = None) -> Summary:
    """What you have solved and tried, by lecture; of the notebooks in another folder if given."""
    if folder is not None and not Path(folder).is_dir():
        raise LabError(f"{str(folder)!r} is not a folder. Give the folder of the notebooks.")
    file = attempts.FILE if folder is None else Path(folder, attempts.FILE.name)
    return attempts.summary(tasks(), file)


def _find(task: str | Task) -> tuple[str, str, Task]:
    """Under which name progress is kept, what stands in a call of the student's, and the task."""
    if isinstance(task, Task):
        return f"own.{task.question}", "task", task
    known = tasks()
    if task in known:
        return task, f'"{task}"', known[task]
    same = [one for one in known if one.partition(".")[0] == str(task).partition(".")[0]]
    names = f"This lecture has: {', '.join(same)}." if same else "The first is 00.kind."
    raise LabError(f"There is no task {task!r}. {names}")
