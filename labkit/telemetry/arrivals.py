"""Up to when each source's rows have arrived; and waiting for those of a moment.

>>> arrivals = Arrivals(every=0.1)
>>> arrivals.of_text('[0,1.2,[95]],[1,1.2001,[20],[30]]')
>>> arrivals.wait_for(1.2, deadline=0), arrivals.wait_for(1.3, deadline=0)
(True, False)
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["Arrivals"]

RECENT = 3.0  # seconds; a source whose rows are older has fallen silent, and nobody waits for it
ROUNDED = 1e-4  # seconds to which the times of rows are written
_ROWS = re.compile(r"\[(\d+),([\d.]+),\[")  # sources and times of rows as they come


class Arrivals:
    """Told of rows by one thread, and waited for by others. `every`: seconds between two looks."""

    def __init__(self, every: float) -> None:
        self._recent = max(RECENT, 3 * every)
        self._newest: dict[int, float] = {}  # of each source
        self._come = threading.Condition()

    def of_lines(self, lines: Sequence[Any]) -> None:
        """Lines as `json.loads` gives them."""
        # A source without devices has one row, which is empty: nobody waits for another.
        self._note((line[0], line[1]) for line in lines if type(line) is list and len(line) > 2)

    def of_text(self, text: str) -> None:
        """Rows as they came, JSON texts with commas between."""
        self._note((int(source), float(time)) for source, time in _ROWS.findall(text))

    def wait_for(self, moment: float, deadline: float) -> bool:
        """Wait for a row of that moment or later from every source that is alive; not for ever."""
        with self._come:
            return self._come.wait_for(lambda: self._are_there(moment - ROUNDED), deadline)

    def _are_there(self, moment: float) -> bool:
        alive = [one for one in self._newest.values() if one > moment - self._recent]
        return bool(alive) and min(alive) >= moment

    def _note(self, rows: Iterable[tuple[int, float]]) -> None:
        with self._come:
            self._newest.update(rows)
            self._come.notify_all()
