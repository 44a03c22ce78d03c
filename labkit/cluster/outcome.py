"""What came of a run: results and errors by rank, every line, and how long it took."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from labkit.cluster.failures import RankError
from labkit.cluster.output import Line
from labkit.kinds import LabError

__all__ = ["Outcome", "explain_deadline"]

LONGEST = 1e6  # seconds: clocks do not go much further


@dataclass(frozen=True)
class Outcome:
    """What came of a run."""

    results: dict[int, Any]
    errors: dict[int, RankError]
    lines: tuple[Line, ...]
    seconds: float
    """From the moment when all ranks were ready."""
    fault: LabError | None = field(default=None, compare=False)
    """The error that the run ended with, unless only tolerated ranks failed."""

    def raise_errors(self) -> None:
        """Raise the error that the run ended with, if any."""
        if self.fault is not None:
            raise self.fault


def explain_deadline(deadline: float) -> float:
    """A number of seconds that clocks can do."""
    if isinstance(deadline, bool) or not isinstance(deadline, (int, float)) or not deadline > 0:
        raise LabError(f"deadline={deadline!r} must be a number of seconds above 0, such as 60.")
    return min(float(deadline), LONGEST)
