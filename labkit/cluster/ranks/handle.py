"""A run: what its ranks have reported, whether it is over, and its outcome.

>>> run = c.start(program)                       # doctest: +SKIP
>>> run.wait_for("step 3", rank=1)               # doctest: +SKIP
>>> run.kill(1)                                  # doctest: +SKIP
>>> outcome = run.finish()                       # doctest: +SKIP
"""

import math
import pickle
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from labkit import shipping
from labkit.arguments import number, whole
from labkit.cluster.ranks.failures import (
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
    waits_in_a_collective,
)
from labkit.cluster.ranks.output import Output, OutputLine
from labkit.cluster.ranks.protocol import Engine, Event
from labkit.hardware.machine import cpu_seconds
from labkit.kinds import LabError
from labkit.time_limit import slowdown

GRACE = 0.5  # seconds for the other ranks to report their own errors, after the first
ANSWERING = 1.0  # seconds for ranks to report where they are
QUIET = 0.1  # seconds without a further piece of a stack: then it is complete
INTERVAL = 0.25  # seconds between two checks of the time limit
ALONE = 5.0  # seconds, at least, in which ranks compute nothing before they wait in vain
BUSY = 0.02  # of a core: less is no computing
LATE = "Give it more time with timeout=, or look there."
EARLY = "Give them more time with labkit.cluster(..., start=180), or take fewer ranks."
ENDLESS = "The program cannot end: it waits in a collective or a receive."
ALL_CALL = "Every rank must make these calls, and make them equally often."
NO_INTERNET = (
    "The ranks have a private network, without the internet: get the data before, or write "
    "labkit.cluster(..., network='shared')."
)


@dataclass(frozen=True)
class RunOutcome:
    """The results and errors of a run, by rank."""

    results: dict[int, Any]
    errors: dict[int, RankError]
    lines: tuple[OutputLine, ...]
    seconds: float
    """Seconds since all ranks had started."""
    fault: LabError | None = field(default=None, compare=False)
    """The error that ended the run, unless only tolerated ranks failed."""

    def raise_errors(self) -> None:
        """Raise the error that ended the run, if any."""
        if self.fault is not None:
            raise self.fault


class RunHandle:
    """A started run, to wait for its end or for a line, and to kill or pause its ranks."""

    def __init__(
        self,
        engine: Engine,
        ranks: int,
        *,
        name: str = "The program",
        start: float = 60.0,
        until: Collection[int] | None = None,
        tolerate: Collection[int] = (),
        show: bool = True,
    ) -> None:
        self._engine, self._name, self._start = engine, name, start
        self._ranks = range(ranks)
        self._until = frozenset(self._ranks if until is None else until)
        self._tolerate = frozenset(tolerate)
        self.output = Output(ranks, show)
        """All that the ranks have written."""
        self._began = time.monotonic()  # when all ranks had started
        self._started: dict[int, int] = {}  # and the pid
        self._ended: set[int] = set()
        self._results: dict[int, Any] = {}
        self._errors: dict[int, RankError] = {}  # in the order in which they came
        self._stacks: dict[int, str] = {}
        self._paused: set[int] = set()
        self._computed = (0, 0.0, 0.0)  # ranks at work, seconds of cores that they had used, when
        self._latest_stack = 0.0
        self._first: RankError | None = None  # the first error of a rank that is not tolerated
        self._failed = math.inf
        self._outcome: RunOutcome | None = None
        self._lock = threading.RLock()  # one thread may wait for the end, and another kill a rank

    @property
    def seconds(self) -> float:
        """Seconds since all ranks had started."""
        return time.monotonic() - self._began

    @property
    def over(self) -> bool:
        """Whether the run has ended."""
        return self._outcome is not None

    def wait_for(self, text: str, rank: int | None = None, timeout: float = 30.0) -> OutputLine:
        """Wait for a line with this text, of a rank or of any rank, and return it."""
        until = time.monotonic() + slowdown() * timeout
        while True:
            line = self.output.find(text, rank)
            over = line is None and self._is_over()
            if over:
                self.finish().raise_errors()
                line = self.output.find(text, rank)  # what was begun is a line now
            if line is not None:
                return line
            who = "no rank has" if rank is None else f"rank {rank} has not"
            if over:
                raise LabError(f"The program ended, and {who} written {text!r}.")
            if time.monotonic() >= until:
                raise LabError(
                    f"In {timeout:g} s {who} written {text!r}. Give it more time with timeout=."
                )
            self._take_events(min(INTERVAL, until - time.monotonic()))

    def kill(self, rank: int) -> None:
        """Kill a rank (SIGKILL), and wait until it is gone."""
        self._engine.signal(self._living(rank), "kill")
        until = time.monotonic() + 5.0
        while rank not in self._ended and not self.over and time.monotonic() < until:
            self._take_events(0.05)

    def pause(self, rank: int) -> None:
        """Stop a rank where it is (SIGSTOP): it neither continues nor answers."""
        self._engine.signal(self._living(rank), "pause")

    def finish(self, timeout: float = 60.0) -> RunOutcome:
        """Wait for the end of the run and return its outcome, with the fault if there is one.

        After `timeout` seconds the run is stopped, later in proportion on a busy machine.
        """
        timeout = number("timeout", timeout, above=0)
        called, slower = time.monotonic(), slowdown()
        try:
            while self._outcome is None:
                now, limit = time.monotonic(), max(called, self._began) + slower * timeout
                missing = [rank for rank in self._ranks if rank not in self._started]
                if self._is_over():
                    self._conclude()
                elif missing and now >= called + slower * self._start:
                    verb = "has" if len(missing) == 1 else "have"
                    late = f"{listed(missing)} {verb} not started in {self._start:g} s."
                    self._conclude(late, EARLY)
                elif not missing and now >= limit:
                    self._conclude(f"{self._name} had not ended after {timeout:g} s.", LATE)
                elif self._waits_in_vain():
                    self._conclude(ENDLESS, ALL_CALL)
                else:
                    self._take_events(min(INTERVAL, max(0.0, limit - now)))
        finally:
            self.stop()
        assert self._outcome is not None
        return self._outcome

    def stop(self) -> None:
        """Stop the run now. Its outcome is what has come so far."""
        with self._lock:
            if self.over:
                return  # by now the engine may have another run
            try:
                self._engine.stop()
            finally:  # after a second interrupt, too, the next run may start: it stops this one
                first = self._first
                self._end(None if first is None else failure(first, self._errors, self._results))

    def _living(self, rank: int) -> int:
        rank = whole("rank", rank, at_most=len(self._ranks) - 1)
        if self.over or rank in self._ended:
            raise LabError(f"Rank {rank} has ended already, so that nothing can be done to it.")
        return rank

    def _at_work(self) -> list[int]:
        """Ranks that have neither returned nor failed."""
        done = {*self._results, *self._errors}
        return [rank for rank in self._ranks if rank not in done]

    def _is_over(self) -> bool:
        if self.over:
            return True
        if self._first is not None:
            return not self._at_work() or time.monotonic() >= self._failed + GRACE
        return self._until <= {*self._results, *self._errors}

    def _take_events(self, timeout: float) -> None:
        with self._lock:
            for event in self._engine.events(timeout):
                self._take(event)
            if self._first is None:
                errors = self._errors.values()
                self._first = next((e for e in errors if e.rank not in self._tolerate), None)
                self._failed = time.monotonic()

    def _take(self, event: Event) -> None:
        rank, value = event.rank, event.value
        match event.what:
            case "out" | "err":
                self.output.take(rank, event.what, value, self.seconds)
            case "stack":
                self._latest_stack = time.monotonic()
                self._stacks[rank] = self._stacks.get(rank, "") + value
            case "paused":
                self._paused.add(rank)
                self._stacks[rank] = ""
            case "started":
                self._started[rank] = value
                self._began = time.monotonic()
            case "returned":
                try:
                    self._results[rank] = shipping.unpack(value)
                except Exception as fault:  # noqa: BLE001 (the user's own class may raise anything)
                    words = f"returned what cannot be read here: {fault}"
                    self._errors[rank] = RankError(rank, "raised", words, seconds=self.seconds)
            case "raised":
                report = pickle.loads(value)  # noqa: S301 (from a process that we have started)
                self._errors[rank] = raised(rank, report, self.seconds)
            case "ended":
                self._ended.add(rank)
                self.output.end(rank, self.seconds)
                if rank in self._at_work():
                    last = self.output.last(rank)
                    self._errors[rank] = died(
                        rank, value, self.seconds, self._stacks.get(rank, ""), event.reason,
                        begun=len(self._started) == len(self._ranks),
                        last_line=last.text if last else "",
                    )  # fmt: skip

    def _waits_in_vain(self) -> bool:
        """Whether some ranks have returned, and all others wait in a collective.

        TensorFlow may wait without computing when it deletes an iterator, at most for as long as
        the iterator lived. So ranks must have waited for longer than they had worked before.
        """
        ranks, now = self._at_work(), time.monotonic()
        if self._engine.name != "local" or self._errors or not self._results:
            return False
        # Threads of a framework use some time in ranks that have returned, too.
        used = cpu_seconds(self._started[rank] for rank in ranks) / len(ranks)
        used -= 2 * cpu_seconds(self._started[rank] for rank in self._results) / len(self._results)
        count, before, since = self._computed
        if count != len(ranks) or used > before + BUSY * (now - since):
            self._computed = len(ranks), used, now
        elif now > since + max(ALONE, since - self._began):
            self._computed = 0, used, now
            self._ask_stacks(ranks)
            stacks = [self._stacks.get(rank, "") for rank in ranks]
            return ranks == self._at_work() and all(map(waits_in_a_collective, stacks))
        return False

    def _conclude(self, late: str = "", advice: str = "") -> None:
        """End a run that is over or late. Ranks still at work are asked for their stacks."""
        errors, fault, first, asked = self._errors, None, self._first, self._at_work()
        if first is not None or late:
            self._ask_stacks({*asked} & self._started.keys() - self._ended)
            # The question wakes who sleeps in C, and what it returns then is too late all the same.
            for rank in self._at_work() if first else asked:
                what: What = "hung" if first is None else "stopped"
                where, stack = self._where(rank), self._stacks.get(rank, "")
                errors[rank] = left(rank, what, self.seconds, where, stack)
                self._results.pop(rank, None)
        with self._lock:
            self._engine.stop()
        if first is not None:
            cause = cause_of(errors.values(), self._tolerate)
            shut_in = self._engine.private_network and found_no_internet(errors.values())
            fault = failure(cause, errors, self._results, NO_INTERNET if shut_in else "")
            if cause.traceback:
                fault.add_note(f"On rank {cause.rank}:\n{cause.traceback}")
        elif late:
            returned = f"{listed(self._results)} returned. " if self._results else ""
            fault = failure(late, errors, self._results, returned + advice)
        self._end(fault)

    def _ask_stacks(self, ranks: Collection[int]) -> None:
        """Ask started ranks for their stacks. SIGUSR1 would end a rank that has not started."""
        for rank in ranks:
            self._stacks.pop(rank, None)  # left before by a program that sends a signal
        if ranks:
            self._engine.ask_stacks(ranks)
        until = time.monotonic() + ANSWERING
        while ranks and (now := time.monotonic()) < until:
            answered = all(rank in self._stacks or rank in self._ended for rank in ranks)
            if answered and now >= self._latest_stack + QUIET:
                break
            self._take_events(QUIET / 2)

    def _where(self, rank: int) -> str:
        if rank not in self._started:
            return "its start"
        if rank in self._paused:
            return "no line at all: it is stopped (SIGSTOP)"
        if stack := self._stacks.get(rank):
            return line_of_stack(stack) or "a library"
        line = self.output.last(rank)
        return "an unknown line" + (f", after it wrote {line.text[:60]!r}" if line else "")

    def _end(self, fault: LabError | None) -> None:
        for rank in self._ranks:
            self.output.end(rank, self.seconds)
        self._outcome = RunOutcome(
            results=dict(sorted(self._results.items())),
            errors=dict(sorted(self._errors.items())),
            lines=self.output.lines(),
            seconds=self.seconds,
            fault=fault,
        )
