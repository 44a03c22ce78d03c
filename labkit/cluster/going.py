"""A run while it goes: when it is over, and what is said of it.

>>> going = c.start(program)                   # doctest: +SKIP
>>> going.wait_for("step 3", rank=1)           # doctest: +SKIP
>>> going.kill(1)                              # doctest: +SKIP
>>> outcome = going.finish()                   # doctest: +SKIP
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection

from labkit.cluster.engine import Engine
from labkit.cluster.failures import RankError, What, cause_of, failure
from labkit.cluster.heard import Heard
from labkit.cluster.outcome import Outcome, explain_deadline
from labkit.cluster.output import Line, Output
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
        self._patience, self._network = start, network
        self._until = frozenset(range(ranks) if until is None else until)
        self._tolerate = frozenset(tolerate)
        self._heard = Heard(ranks, show, learn)
        self._first: RankError | None = None  # the first that nobody tolerates
        self._failed = math.inf
        self._outcome: Outcome | None = None

    @property
    def output(self) -> Output:
        """All that the ranks have written."""
        return self._heard.output

    @property
    def pids(self) -> dict[int, int]:
        """The process of each rank that is there."""
        return self._heard.pids

    @property
    def seconds(self) -> float:
        """Since all ranks were ready."""
        return self._heard.seconds

    @property
    def over(self) -> bool:
        """Whether nothing of it runs any more."""
        return self._outcome is not None

    def wait_for(self, text: str, rank: int | None = None, deadline: float = 30.0) -> Line:
        """The first line of a rank, or of any, that has this text in it."""
        until = time.monotonic() + deadline
        while True:
            line = self._heard.line_with(text, rank)
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
        while not self._heard.all_ready and not self._is_over():
            self._pump(LOOK)

    def kill(self, rank: int) -> None:
        """Kill a rank (SIGKILL), and wait until it is gone."""
        self._explain_rank(rank)
        self._ask([rank], patience=0.3)
        self._engine.signal(rank, "kill")
        until = time.monotonic() + 5.0
        while rank not in self._heard.ended and not self.over and time.monotonic() < until:
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
                limit = max(called, self._heard.began) + deadline
                began, now = self._heard.all_ready, time.monotonic()
                if self._is_over():
                    self._conclude()
                elif not began and now >= called + self._patience:
                    who = self._heard.who_is_not_ready()
                    self._conclude(f"{who} after {self._patience:g} s.")
                elif began and now >= limit:
                    self._conclude(f"{self._name} had not ended after {deadline:g} s.")
                else:
                    self._pump(min(LOOK, max(0.0, limit - now)))
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
        if self.over or rank in self._heard.ended:
            raise LabError(f"Rank {rank} has ended already, so that nothing can be done to it.")

    def _pump(self, timeout: float) -> None:
        for event in self._engine.events(timeout):
            self._heard.take(event)
        if self._first is None:
            for rank, error in self._heard.errors.items():
                if rank not in self._tolerate:
                    self._first, self._failed = error, time.monotonic()
                    break

    def _is_over(self) -> bool:
        if self._outcome is not None:
            return True
        if self._until <= self._heard.done:
            return self._first is None or self._grace_is_over()
        return self._first is not None and self._grace_is_over()

    def _grace_is_over(self) -> bool:
        return not self._heard.silent() or time.monotonic() >= self._failed + GRACE

    def _conclude(self, late: str = "") -> None:
        """All is over, by itself, by an error or by its deadline: ask who is left, and end it."""
        heard = self._heard
        if self._first is not None or late:
            self._ask(heard.silent(), ASKING)
            what: What = "stopped" if self._first is not None else "hung"
            for rank in heard.silent():
                heard.leave(rank, what)
        self._engine.stop()
        advice = ""
        if late and self._first is None:
            # Who has returned while being asked was late by less than that took.
            late = late if any(e.what == "hung" for e in heard.errors.values()) else ""
            advice = LATE if heard.all_ready else EARLY
        fault = None
        if self._first or late:
            cause = cause_of(heard.errors.values(), self._tolerate) if self._first else None
            first = cause.text if cause else late
            fault = failure(first, heard.errors, heard.results, self._network, advice)
            if cause and cause.exception is not None:
                cause.exception.add_note(f"On rank {cause.rank}:\n{cause.traceback}")
                fault.__cause__ = cause.exception
        self._outcome = self._result(fault)

    def _ask(self, ranks: Collection[int], patience: float) -> None:
        """Ask ranks where they are, and listen until they have said it.

        One that is not ready could not answer: the question would be its end.
        """
        ranks = [r for r in ranks if r in self._heard.ready and r not in self._heard.ended]
        if not ranks:
            return
        self._heard.forget_places(ranks)
        self._engine.ask_stacks(ranks)
        until = time.monotonic() + patience
        while time.monotonic() < until:
            if self._heard.have_said_where(ranks, QUIET):
                return
            self._pump(QUIET / 2)

    def _result(self, fault: LabError | None) -> Outcome:
        heard = self._heard
        for rank in range(self._ranks):
            heard.output.end(rank, heard.seconds)
        errors = dict(heard.errors)
        if fault is None and self._first is not None:
            fault = failure(self._first.text, errors, heard.results, self._network)
        return Outcome(
            results=dict(sorted(heard.results.items())),
            errors=dict(sorted(errors.items())),
            lines=heard.output.lines(),
            seconds=heard.seconds,
            fault=fault,
        )
