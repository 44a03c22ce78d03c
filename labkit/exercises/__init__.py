"""Questions in the notebooks that are answered in a cell and judged at once.

>>> from labkit.exercises import check
>>> check("01.bytes_per_step", 4_799_528).state
'right'
"""

from labkit.exercises.function_task import FunctionTask
from labkit.exercises.program_task import ProgramOutcome, ProgramTask, Target
from labkit.exercises.task import Outcome, Task, check, tasks
from labkit.exercises.written_task import WrittenTask

__all__ = [
    "FunctionTask",
    "Outcome",
    "ProgramOutcome",
    "ProgramTask",
    "Target",
    "Task",
    "WrittenTask",
    "check",
    "tasks",
]
