"""A run: what has been heard of its ranks, when it is over, and what came of it.

>>> run = c.start(program)                       # doctest: +SKIP
>>> run.wait_for("step 3", rank=1)               # doctest: +SKIP
>>> run.kill(1)                                  # doctest: +SKIP
>>> outcome = run.finish()                       # doctest: +SKIP
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from labkit.arguments import number, whole
from labkit.cluster.engine import (
    Ended,
    Engine,
    Event,
    Raised,
    Returned,
    Stack,
    Started,
    Wrote,
)
from labkit.cluster.failures import (
    NO_INTERNET,
    RankError,
    What,
    cause_of,
    died,
    failure,
    found_no_internet,
    left,
    line_of_stack,
    listed,
    raised,
)
from labkit.cluster.in_rank import result_of
from labkit.cluster.output import Line, Output
from labkit.kinds import LabError

__all__ = ["Outcome", "RankStates", "RunHandle", "checked_seconds"]

GRACE = 0.5  # seconds for the other ranks to report their own errors, after the first
ANSWERING = 1.0  # seconds for ranks to report where they are
QUIET = 0.1  # seconds without a further piece of a stack: then it is complete
PUMP = 0.25  # seconds between two looks at the clock
LONGEST = 1e6  # seconds: clocks do not go much further
LATE = "Give it more time with deadline=, or look there."
EARLY = "Give them more time with labkit.cluster(..., start=180), or take fewer ranks."


def checked_seconds(name: str, seconds: Any) -> float:
    """A number of seconds above 0."""
    return min(number(name, LONGEST if seconds == math.inf else seconds, above=0), LONGEST)


@dataclass(frozen=True)
class Outcome:
    """What came of a run."""

    results: dict[int, Any]
    errors: dict[int, RankError]
    lines: tuple[Line, ...]
    seconds: float
    """From the moment when all ranks had started."""
    fault: LabError | None = field(default=None, compare=False)
    """The error that ended the run, unless only tolerated ranks failed."""

    def raise_errors(self) -> None:
        """Raise the error that ended the run, if any."""
        if self.fault is not None:
            raise self.fault


class RankStates:
    """What the events of a run, taken one by one, amount to.

    >>> states = RankStates(ranks=2, show=False)
    >>> states.take(Started(0, pid=71, host="here"))
    >>> states.take(Wrote(0, "out", b"step 1"))
    >>> states.at_work(), states.all_started
    ([0, 1], False)
    """

    def __init__(self, ranks: int, show: bool) -> None:
        self.ranks = ranks
        self.output = Output(ranks, show)
        self.began = time.monotonic()
        """When all ranks had started; until then, when this was made."""
        self.pids: dict[int, int] = {}
        """Of those that have started."""
        self.ended: set[int] = set()
        self.results: dict[int, Any] = {}
        self.errors: dict[int, RankError] = {}
        """In the order in which they came."""
        self._stacks: dict[int, str] = {}
        self._paused: set[int] = set()
        self._latest_stack = 0.0

    @property
    def seconds(self) -> float:
        """Since all ranks had started."""
        return time.monotonic() - self.began

    @property
    def all_started(self) -> bool:
        """Whether all ranks have started."""
        return len(self.pids) == self.ranks

    def at_work(self) -> list[int]:
        """Ranks that have neither returned nor failed."""
        done = {*self.results, *self.errors}
        return [rank for rank in range(self.ranks) if rank not in done]

    def take(self, event: Event) -> None:
        """One more event."""
        match event:
            case Wrote():
                self.output.take(event.rank, event.stream, event.data, self.seconds)
            case Stack():
                self._latest_stack = time.monotonic()
                self._stacks[event.rank] = self._stacks.get(event.rank, "") + event.text
                if event.paused:
                    self._paused.add(event.rank)
            case Started():
                self.pids[event.rank] = event.pid
                if self.all_started:
                    self.began = time.monotonic()
            case Returned():
                self._returned(event)
            case Raised():
                self.errors[event.rank] = raised(event.rank, event.payload, self.seconds)
            case Ended():
                self._has_ended(event)

    def forget_stacks(self, ranks: Collection[int]) -> None:
        """They are asked now; a program that sends a signal has left a stack before."""
        for rank in ranks:
            self._stacks.pop(rank, None)

    def have_answered(self, ranks: Collection[int]) -> bool:
        """Whether all have reported where they are, completely."""
        answered = all(rank in self._stacks or rank in self.ended for rank in ranks)
        return answered and time.monotonic() >= self._latest_stack + QUIET

    def leave(self, rank: int, what: What) -> None:
        """It was still at work when the run ended: its error says where."""
        self.errors[rank] = left(
            rank, what, self.seconds, self._where(rank), self._stacks.get(rank, "")
        )

    def _returned(self, event: Returned) -> None:
        try:
            self.results[event.rank] = result_of(event.payload)
        except Exception as fault:  # noqa: BLE001 (the user's own class may raise anything)
            text = f"What rank {event.rank} returned cannot be read here: {fault}"
            self.errors[event.rank] = RankError(event.rank, "raised", text, seconds=self.seconds)

    def _has_ended(self, event: Ended) -> None:
        rank = event.rank
        self.ended.add(rank)
        self.output.end(rank, self.seconds)
        if rank in self.at_work():
            self.errors[rank] = died(
                rank,
                event.code,
                self.seconds,
                self._stacks.get(rank, ""),
                event.reason,
                begun=self.all_started,
            )

    def _where(self, rank: int) -> str:
        if rank not in self.pids:
            return "its start"
        if rank in self._paused:
            return "no line at all: it is stopped (SIGSTOP)"
        if stack := self._stacks.get(rank):
            return line_of_stack(stack) or "a library"
        line = self.output.last(rank)
        return f"an unknown line, after it wrote {line.text[:60]!r}" if line else "an unknown line"


class RunHandle:
    """A run that has been started."""

    def __init__(
        self,
        engine: Engine,
        ranks: int,
        *,
        name: str,
        start: float,
        until: Collection[int] | None,
        tolerate: Collection[int],
        show: bool,
        private: bool,
    ) -> None:
        self._engine, self._name = engine, name
        self._start, self._private = start, private
        self._until = frozenset(range(ranks) if until is None else until)
        self._tolerate = frozenset(tolerate)
        self._states = RankStates(ranks, show)
        self._first: RankError | None = None  # the first of a rank that is not tolerated
        self._failed = math.inf
        self._outcome: Outcome | None = None

    @property
    def output(self) -> Output:
        """All that the ranks have written."""
        return self._states.output

    @property
    def pids(self) -> dict[int, int]:
        """The process of each rank that has started."""
        return self._states.pids

    @property
    def seconds(self) -> float:
        """Since all ranks had started."""
        return self._states.seconds

    @property
    def over(self) -> bool:
        """Whether nothing of it runs any more."""
        return self._outcome is not None

    def wait_for(self, text: str, rank: int | None = None, deadline: float = 30.0) -> Line:
        """The first line of a rank, or of any, that has this text in it."""
        until = time.monotonic() + deadline
        while True:
            line = self.output.find(text, rank, self.seconds)
            if line is not None:
                return line
            who = "no rank has" if rank is None else f"rank {rank} has not"
            if self._is_over():
                self.finish().raise_errors()
                raise LabError(f"The program ended, and {who} written {text!r}.")
            if time.monotonic() >= until:
                raise LabError(
                    f"In {deadline:g} s {who} written {text!r}. Give it more time with deadline=."
                )
            self._pump(min(PUMP, until - time.monotonic()))

    def kill(self, rank: int) -> None:
        """Kill a rank (SIGKILL), and wait until it is gone."""
        self._engine.signal(self._living(rank), "kill")
        until = time.monotonic() + 5.0
        while rank not in self._states.ended and not self.over and time.monotonic() < until:
            self._pump(0.05)

    def pause(self, rank: int) -> None:
        """Stop a rank where it is (SIGSTOP): it neither continues nor answers."""
        self._engine.signal(self._living(rank), "pause")

    def resume(self, rank: int) -> None:
        """Let a paused rank continue (SIGCONT)."""
        self._engine.signal(self._living(rank), "resume")

    def finish(self, deadline: float = 60.0) -> Outcome:
        """Wait at most so many seconds for the end. A fault of the run is in the outcome."""
        deadline = checked_seconds("deadline", deadline)
        called, states = time.monotonic(), self._states
        try:
            while self._outcome is None:
                now, limit = time.monotonic(), max(called, states.began) + deadline
                if self._is_over():
                    self._conclude()
                elif not states.all_started and now >= called + self._start:
                    missing = [rank for rank in range(states.ranks) if rank not in states.pids]
                    verb = "has" if len(missing) == 1 else "have"
                    self._conclude(f"{listed(missing)} {verb} not started in {self._start:g} s.")
                elif states.all_started and now >= limit:
                    self._conclude(f"{self._name} had not ended after {deadline:g} s.")
                else:
                    self._pump(min(PUMP, max(0.0, limit - now)))
        finally:
            self.stop()
        assert self._outcome is not None
        return self._outcome

    def stop(self) -> None:
        """End it now. Its outcome is what has come so far."""
        self._engine.stop()
        if self._outcome is None:
            fault = None
            if self._first is not None:
                fault = failure(self._first.text, self._states.errors, self._states.results)
            self._outcome = self._result(fault)

    def _living(self, rank: int) -> int:
        rank = whole("rank", rank, at_most=self._states.ranks - 1)
        if self.over or rank in self._states.ended:
            raise LabError(f"Rank {rank} has ended already, so that nothing can be done to it.")
        return rank

    def _pump(self, timeout: float) -> None:
        for event in self._engine.events(timeout):
            self._states.take(event)
        if self._first is None:
            for rank, error in self._states.errors.items():
                if rank not in self._tolerate:
                    self._first, self._failed = error, time.monotonic()
                    break

    def _is_over(self) -> bool:
        if self._outcome is not None:
            return True
        if self._first is not None:
            return not self._states.at_work() or time.monotonic() >= self._failed + GRACE
        return self._until <= {*self._states.results, *self._states.errors}

    def _conclude(self, late: str = "") -> None:
        """Over by itself, by an error or by its time limit: ask who is at work, and end it."""
        states = self._states
        if self._first is not None or late:
            self._ask_stacks(states.at_work())
            what: What = "stopped" if self._first is not None else "hung"
            for rank in states.at_work():
                states.leave(rank, what)
        self._engine.stop()
        fault = None
        if self._first is not None:
            cause = cause_of(states.errors.values(), self._tolerate)
            shut_in = self._private and found_no_internet(states.errors.values())
            advice = NO_INTERNET if shut_in else ""
            fault = failure(cause.text, states.errors, states.results, advice)
            if cause.exception is not None:
                cause.exception.add_note(f"On rank {cause.rank}:\n{cause.traceback}")
                fault.__cause__ = cause.exception
        elif any(error.what == "hung" for error in states.errors.values()):
            # Otherwise all have returned while they were asked.
            advice = LATE if states.all_started else EARLY
            fault = failure(late, states.errors, states.results, advice)
        self._outcome = self._result(fault)

    def _ask_stacks(self, ranks: Collection[int]) -> None:
        """Ask ranks where they are. One that has not started could not answer: SIGUSR1 ends it."""
        ranks = [r for r in ranks if r in self._states.pids and r not in self._states.ended]
        if not ranks:
            return
        self._states.forget_stacks(ranks)
        self._engine.ask_stacks(ranks)
        until = time.monotonic() + ANSWERING
        while time.monotonic() < until and not self._states.have_answered(ranks):
            self._pump(QUIET / 2)

    def _result(self, fault: LabError | None) -> Outcome:
        states = self._states
        for rank in range(states.ranks):
            states.output.end(rank, states.seconds)
        return Outcome(
            results=dict(sorted(states.results.items())),
            errors=dict(sorted(states.errors.items())),
            lines=states.output.lines(),
            seconds=states.seconds,
            fault=fault,
        )
