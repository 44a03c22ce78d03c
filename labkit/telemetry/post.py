"""A source, and where the looks at it stand: when the next is due, and who waits for it."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable

from labkit.telemetry.lines import source_line, state_line
from labkit.telemetry.looks import Watch
from labkit.telemetry.metrics import State, Why

__all__ = ["SLOWS", "Post"]

CLOSE = 0.005  # seconds: marks that come nearer than this share a look
SLOW, SLOWS = 0.05, 3  # a source that takes so many seconds so many times gets its own thread
READ = 0.9  # seconds after which a glance will not do
SILENT = 3.0  # seconds after which a look that has not come back is told


class Post:
    """A source, and where its looks stand."""

    def __init__(self, number: int, watch: Watch, began: float) -> None:
        self.number, self.watch = number, watch
        self.tried = False  # has been opened, or has failed to
        self.marked = self.urgent = False  # a look is asked for; and somebody waits for it
        self.awaited = False  # for what was seen, and not handed over yet
        self._asking = threading.Lock()
        self.since: float | None = None  # when the look that is under way began
        self.due = -math.inf  # when the next one begins
        self.read_by = -math.inf  # from then on, a glance will not do
        self._looked = -math.inf
        self._began = began
        self._silent = False
        self.slows = 0

    def begin(self) -> float:
        """When the next look begins."""
        # Where there is nothing to look at, a mark asks in vain.
        wanted = self.marked and self.watch.opened and self.watch.devices
        return min(self.due, self._looked + CLOSE) if wanted else self.due

    def ask(self, urgently: bool) -> None:
        """Mark this moment, from any thread."""
        with self._asking:
            self.marked, self.urgent = True, self.urgent or urgently

    def answer(self) -> bool:
        """The look that begins now is of all marks so far; whether somebody waits for it."""
        with self._asking:
            urgent, self.marked, self.urgent = self.urgent, False, False
            return urgent

    def glance(self, now: float, clock: Callable[[], float]) -> bool:
        """Look, and leave the rest for later. False: look now."""
        self.since = now
        marked = self.marked
        urgent = marked and self.answer()  # before it: a mark that comes meanwhile asks for another
        well = self.watch.glance(marked)
        after = clock()
        self.since = None
        if well:
            self.slows = self.slows + 1 if after - now > SLOW else 0
            self._looked = now
            if self.due <= after:
                self.due = self.watch.due(after)
            self.awaited |= urgent
        elif marked:
            self.ask(urgent)  # it is still to be looked at
        return well

    def look(self, now: float, clock: Callable[[], float]) -> None:
        """Look; `report` tells what that gave."""
        self._looked = self.since = now
        self.due = self.watch.look(now, self.number)
        after = clock()
        if self.watch.opened and self.due != math.inf:
            self.due = self.watch.due(after)
        self.read_by = now + READ - (self.watch.due(now) - now) / 2
        self.since = None
        self.slows = self.slows + 1 if after - now > SLOW and self.tried else 0

    def recall(self, now: float) -> None:
        """Work out what was glanced at; `report` tells what that gave."""
        self.since = now
        due = self.watch.recall(now, self.number)
        if due is not None:
            self.due = due
        self.since = None

    def line(self) -> str:
        """The source and its devices."""
        source = self.watch.source
        return source_line(source.name, source.metrics, self.watch.devices)

    def silence(self, now: float) -> Iterable[str]:
        """Tell, once, that a look does not come back."""
        since = self.since
        if since is None or self._silent or now - since <= SILENT:
            return
        self._silent = True
        says = (
            f"{self.watch.source.name} has not answered for {SILENT:g} s. "
            "Everything else goes on; nothing is known about it until it answers."
        )
        yield self._state_line(now, "silent", says)

    def report(self, now: float, *, named: bool) -> list[str]:
        """The lines of the last look. `named`: the sources were handed over before."""
        self.tried = True
        lines = [state_line(state, self._began) for state in self.watch.states] + self.watch.rows
        if self._silent:
            self._silent = False
            if self.watch.opened:
                says = f"{self.watch.source.name} answers again."
                lines.insert(0, self._state_line(now, "fine", says))
        # Until the recording's opening is out, that names the devices.
        return [self.line(), *lines] if self.watch.news and named else lines

    def _state_line(self, now: float, why: Why, says: str) -> str:
        return state_line(State(now, self.watch.source.name, "", why, says), self._began)
