"""A task that is answered by writing something: a configuration, a script, a small function.

What is handed in is tried, not compared with a text: two answers may both be right.

>>> from labkit.exercises import check
>>> check("10.hosts", ["node01", "node02", "node03", "node07", "gpu5"]).state
'right'
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from labkit.kinds import LabError

if TYPE_CHECKING:
    from labkit.exercises.task import Outcome

__all__ = ["WrittenTask"]


@dataclass(frozen=True)
class WrittenTask:
    """Something to write. `missing` tries an answer and says what is wrong with it.

    It gives "" when nothing is, and None when nothing has been written yet. `why` is shown in the
    end.
    """

    question: str
    missing: Callable[[Any], str | None]
    hint: str
    why: str

    def judge(self, name: str, answer: object) -> Outcome:
        """What becomes of an answer."""
        from labkit.exercises.task import Outcome

        try:
            wrong = None if answer is ... else self.missing(answer)
        except LabError as fault:
            wrong = str(fault)
        if wrong is None:
            return Outcome(name, "open", f"Not answered yet. {self.question}")
        if wrong:
            return Outcome(name, "wrong", f"Not yet. {wrong}\nHint: {self.hint}")
        return Outcome(name, "right", f"Right. {self.why}")
