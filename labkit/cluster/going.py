"""A run while it goes: what events mean, when it is over, and what is said of it.

>>> going = c.start(program)                   # doctest: +SKIP
>>> going.wait_for("step 3", rank=1)           # doctest: +SKIP
>>> going.kill(1)                              # doctest: +SKIP
>>> outcome = going.finish()                   # doctest: +SKIP
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection
from typing import Any

from labkit.cluster.engine import (
    Ended,
    Engine,
    Event,
    Raised,
    Ready,
    Returned,
    Said,
    Stack,
)
from labkit.cluster.engine import Output as Wrote
from labkit.cluster.failures import RankError, What, cause_of, died, failure, left, listed, raised
from labkit.cluster.outcome import Outcome, explain_deadline
from labkit.cluster.output import Line, Output
from labkit.cluster.places_in_code import Place, place_in_stack
from labkit.cluster.rank import result_of
from labkit.kinds import LabError

__all__ = ["Going", "explain_deadline"]

GRACE = 0.5  # seconds for the other ranks to say their own errors, after the first
ASKING = 1.0  # seconds for them to say where they are
QUIET = 0.1  # seconds without a word: then they have said it
LOOK = 0.25  # seconds: a deadline is looked at so often
LATE = "Give it more time with deadline=, or look there."
EARLY = "Give them more time with labkit.cluster(..., start=180), or take fewer ranks."


class Going:
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
        network: str,
        learn: Callable[[tuple[str, ...]], None],
    ) -> None:
        self._engine, self._ranks, self._name = engine, ranks, name
        self._patience, self._network, self._learn = start, network, learn
        self._until = frozenset(range(ranks) if until is None else until)
        self._tolerate = frozenset(tolerate)
        self.output = Output(ranks, show)
        self._began = time.monotonic()
        self._going = False
        self._ready: set[int] = set()
        self.pids: dict[int, int] = {}
        self._ended: set[int] = set()
        self._results: dict[int, Any] = {}
        self._errors: dict[int, RankError] = {}
        self._stacks: dict[int, str] = {}
        self._paused: set[int] = set()
        self._heard = 0.0  # when the latest piece of a stack came
        self._first: RankError | None = None  # the first that nobody tolerates
        self._failed = math.inf
        self._outcome: Outcome | None = None

    @property
    def seconds(self) -> float:
        """Since all ranks were ready."""
        return time.monotonic() - self._began

    @property
    def over(self) -> bool:
        """Whether nothing of it runs any more."""
        return self._outcome is not None

    def wait_for(self, text: str, rank: int | None = None, deadline: float = 30.0) -> Line:
        """The first line of a rank, or of any, that has this text in it."""
        until = time.monotonic() + deadline
        while True:
            line = self._find(text, rank)
            if line is not None:
                return line
            who = "no rank has" if rank is None else f"rank {rank} has not"
            if self._is_over():
                self.finish().raise_errors()
                raise LabError(
                    f"The program ended, and {who} written {text!r}. Look for words that "
                    "the program prints."
                )
            if time.monotonic() >= until:
                raise LabError(
                    f"In {deadline:g} s {who} written {text!r}. Give it more time with deadline=."
                )
            self._pump(min(LOOK, until - time.monotonic()))

    def wait_until_ready(self) -> None:
        """Until every rank is there."""
        while not self._going and not self._is_over():
            self._pump(LOOK)

    def kill(self, rank: int) -> None:
        """Kill a rank (SIGKILL), and wait until it is gone."""
        self._explain_rank(rank)
        self._ask([rank], patience=0.3)
        self._engine.signal(rank, "kill")
        until = time.monotonic() + 5.0
        while rank not in self._ended and not self.over and time.monotonic() < until:
            self._pump(0.05)

    def pause(self, rank: int) -> None:
        """Stop a rank where it is (SIGSTOP): it neither goes on nor says a word."""
        self._explain_rank(rank)
        self._engine.signal(rank, "pause")

    def resume(self, rank: int) -> None:
        """Let a paused rank go on (SIGCONT)."""
        self._explain_rank(rank)
        self._engine.signal(rank, "resume")

    def finish(self, deadline: float = 60.0) -> Outcome:
        """Wait for its end, at most so many seconds; what came of it. A fault of it is in there."""
        deadline = explain_deadline(deadline)
        called = time.monotonic()
        try:
            while self._outcome is None:
                limit = max(called, self._began) + deadline
                if self._is_over():
                    self._conclude()
                elif not self._going and time.monotonic() >= called + self._patience:
                    self._conclude(self._not_ready())
                elif self._going and time.monotonic() >= limit:
                    self._conclude(f"{self._name} had not ended after {deadline:g} s.")
                else:
                    self._pump(min(LOOK, max(0.0, limit - time.monotonic())))
        finally:
            self.stop()
        assert self._outcome is not None
        return self._outcome

    def stop(self) -> None:
        """End it now. What has come so far is its outcome."""
        self._engine.stop()
        if self._outcome is None:
            self._outcome = self._result(None)

    def _explain_rank(self, rank: int) -> None:
        if not isinstance(rank, int) or not 0 <= rank < self._ranks:
            raise LabError(f"There is no rank {rank!r}: they are numbered 0 to {self._ranks - 1}.")
        if self.over or rank in self._ended:
            raise LabError(f"Rank {rank} has ended already, so that nothing can be done to it.")

    def _find(self, text: str, rank: int | None) -> Line | None:
        for line in self.output.lines():
            if text in line.text and rank in (None, line.rank):
                return line
        for number, stream, begun in self.output.unfinished():
            if text in begun and rank in (None, number):
                return Line(self.seconds, number, stream, begun)
        return None

    def _pump(self, timeout: float) -> None:
        for event in self._engine.events(timeout):
            self._take(event)

    def _take(self, event: Event) -> None:
        match event:
            case Wrote():
                self.output.take(event.rank, event.stream, event.data, self.seconds)
            case Stack():
                self._heard = time.monotonic()
                self._stacks[event.rank] = self._stacks.get(event.rank, "") + event.text
                if event.stopped:
                    self._paused.add(event.rank)
            case Ready():
                self._ready.add(event.rank)
                self.pids[event.rank] = event.pid
                if len(self._ready) == self._ranks:
                    self._going, self._began = True, time.monotonic()
            case Returned():
                self._returned(event)
            case Raised():
                self._fail(raised(event.rank, event.payload, self.seconds))
            case Ended():
                self._has_ended(event)
            case Said():
                print(event.text, flush=True)

    def _returned(self, event: Returned) -> None:
        try:
            self._results[event.rank], loaded = result_of(event.payload)
        except Exception as fault:  # noqa: BLE001 (the user's own class may raise anything)
            text = f"What rank {event.rank} returned cannot be read here: {fault}"
            self._fail(RankError(event.rank, "raised", text, seconds=self.seconds))
        else:
            self._learn(loaded)

    def _has_ended(self, event: Ended) -> None:
        rank = event.rank
        self._ended.add(rank)
        self.output.end(rank, self.seconds)
        if rank not in self._results and rank not in self._errors:
            stack = self._stacks.get(rank, "")
            self._fail(died(rank, event.code, self.seconds, stack, event.reason, begun=self._going))

    def _fail(self, error: RankError) -> None:
        self._errors[error.rank] = error
        if error.rank not in self._tolerate and self._first is None:
            self._first, self._failed = error, time.monotonic()

    def _is_over(self) -> bool:
        if self._outcome is not None:
            return True
        if self._until <= {*self._results, *self._errors}:
            return self._first is None or self._grace_is_over()
        return self._first is not None and self._grace_is_over()

    def _grace_is_over(self) -> bool:
        others = self._ranks - len({*self._results, *self._errors})
        return not others or time.monotonic() >= self._failed + GRACE

    def _not_ready(self) -> str:
        missing = [rank for rank in range(self._ranks) if rank not in self._ready]
        was = "was" if len(missing) == 1 else "were"
        return f"{listed(missing)} {was} not ready after {self._patience:g} s."

    def _silent(self) -> list[int]:
        """Ranks that have neither returned nor failed."""
        return [r for r in range(self._ranks) if r not in self._results and r not in self._errors]

    def _conclude(self, late: str = "") -> None:
        """All is over, by itself, by an error or by its deadline: ask who is left, and end it."""
        silent = self._silent()
        if self._first is not None or late:
            self._ask([rank for rank in silent if rank in self._ready], ASKING)
            what: What = "stopped" if self._first is not None else "hung"
            for rank in self._silent():
                self._errors[rank] = self._left(rank, what)
        self._engine.stop()
        advice = ""
        if late and self._first is None:
            # Who has returned while being asked was late by less than that took.
            late = late if any(e.what == "hung" for e in self._errors.values()) else ""
            advice = LATE if self._going else EARLY
        fault = None
        if self._first or late:
            cause = cause_of(self._errors.values(), self._tolerate) if self._first else None
            first = cause.text if cause else late
            fault = failure(first, self._errors, self._results, self._network, advice)
            if cause and cause.exception is not None:
                cause.exception.add_note(f"On rank {cause.rank}:\n{cause.traceback}")
                fault.__cause__ = cause.exception
        self._outcome = self._result(fault)

    def _left(self, rank: int, what: What) -> RankError:
        """What a rank was doing that has neither returned nor failed."""
        stack = self._stacks.get(rank, "")
        if rank not in self._ready:
            where = "its start"
        elif rank in self._paused:
            where = "no line at all: it is stopped (SIGSTOP)"
        else:
            where = self._words_for(rank, place_in_stack(stack), stack)
        return left(rank, what, self.seconds, where, stack)

    def _words_for(self, rank: int, place: Place | None, stack: str) -> str:
        if place is not None:
            return str(place)
        if stack:
            return "a library"
        line = self.output.last(rank)
        return (
            f"an unknown place, after it wrote {line.text[:60]!r}" if line else "an unknown place"
        )

    def _ask(self, ranks: Collection[int], patience: float) -> None:
        """Ask ranks where they are, and listen until they have said it."""
        ranks = [rank for rank in ranks if rank not in self._ended]
        if not ranks:
            return
        for rank in ranks:
            self._stacks.pop(rank, None)
        self._paused -= set(ranks)
        self._engine.ask_stacks(ranks)
        until = time.monotonic() + patience
        while (now := time.monotonic()) < until:
            said = all(r in self._stacks or r in self._ended for r in ranks)
            if said and now >= self._heard + QUIET:
                return
            self._pump(QUIET / 2)

    def _result(self, fault: LabError | None) -> Outcome:
        for rank in range(self._ranks):
            self.output.end(rank, self.seconds)
        errors = dict(self._errors)
        if fault is None and self._first is not None:
            fault = failure(self._first.text, errors, self._results, self._network)
        return Outcome(
            results=dict(sorted(self._results.items())),
            errors=dict(sorted(errors.items())),
            lines=self.output.lines(),
            seconds=self.seconds,
            fault=fault,
        )
