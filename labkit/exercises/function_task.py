"""A task that is answered with a function: it is called, and what it does is judged.

>>> from labkit.exercises import check
>>> check("08.my_step", lambda delay: 2.0).state
'wrong'
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import TYPE_CHECKING, Any

from labkit.kinds import LabError
from labkit.time_limit import TimeLimit, time_limit

if TYPE_CHECKING:
    from labkit.exercises.task import Outcome

__all__ = ["FunctionTask"]

# A function of an exercise is done in milliseconds; one that is not runs in circles.
DEADLINE = 10.0


class _NotWritten(Exception):
    """A function that gives back `...` as the cell did when it was opened."""


@dataclass(frozen=True)
class FunctionTask:
    """One function to write. `examine` calls it and says what is wrong, or nothing.

    What it cannot go on from, it raises as a LabError. `why` is shown in the end.
    """

    question: str
    examine: Callable[[Callable[..., Any]], str]
    hint: str
    why: str

    def judge(self, name: str, answer: object) -> Outcome:
        """What becomes of a function."""
        from labkit.exercises.task import Outcome

        unanswered = Outcome(name, "open", f"Not answered yet. {self.question}")
        if answer is ...:
            return unanswered
        if not callable(answer):
            text = f"{answer!r} is no function. Hand in the function itself, without brackets."
        else:
            try:
                text = self._examined(answer)
            except _NotWritten:
                return unanswered
        if not text:
            return Outcome(name, "right", f"Right. {self.why}")
        return Outcome(name, "wrong", f"Not yet. {text}\nHint: {self.hint}")

    def _examined(self, function: Callable[..., Any]) -> str:
        def written(*given: Any) -> Any:
            found = function(*given)
            if found is ...:
                raise _NotWritten
            return found

        try:
            with time_limit(DEADLINE):
                return self.examine(written)
        except TimeLimit:
            return f"It was not done after {DEADLINE:g} s. Look for a loop that does not end."
        except LabError as fault:
            return str(fault)
        except _NotWritten:
            raise
        except (Exception, SystemExit) as fault:  # exit() in an exercise ends no lecture
            line = _line_of(fault, getattr(function, "__code__", None))
            if line is None and not isinstance(fault, TypeError):
                raise  # nobody's fault but ours
            where = "" if line is None else f" in its line {line}"
            said = f": {fault}" if str(fault) else ""
            return f"It raised {type(fault).__name__}{where}{said}."


def _line_of(fault: BaseException, code: CodeType | None) -> int | None:
    """The line of the function in which it failed; its `def` is line 1."""
    lines = [
        number - code.co_firstlineno + 1
        for frame, number in traceback.walk_tb(fault.__traceback__)
        if code is not None and frame.f_code is code
    ]
    return lines[-1] if lines else None
