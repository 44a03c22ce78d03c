"""Measure what each candidate brings: in blocks within one run, or in runs of its own, in turns.

The largest gain gets the seconds first, until its interval is worth stating.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from labkit.explain.candidates import Candidate
from labkit.explain.runs import OneRun, Report, Runs
from labkit.explain.seen import Seen
from labkit.explain.statements import Statement, ask

WINDOW = 5.0  # seconds of steps in a run of its own
LONG = 22.0  # seconds of steps in a run with blocks
NARROW = 1.16  # the ratio of an interval's ends that is worth stating
SETTLE = ("input", "comm", "last", "fuse", "even", "compile")  # a block of these needs a start
STUDENT = (0, 12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14)

Phase = tuple[int, list[str], Candidate]  # so many steps, what is left out in them, for which


@dataclass(frozen=True)
class Gain:
    """How many times as fast, with its 95 % interval."""

    value: float
    low: float
    high: float
    pairs: int


def gain(logs: list[float]) -> Gain | None:
    """The mean ratio with Student's interval; outliers are drawn in to 3 deviations of the median.

    Two pairs have no interval: nothing is said before the third.

    >>> found = gain([0.68, 0.70, 0.69, 0.71])
    >>> round(found.value, 2), round(found.low, 2), round(found.high, 2)
    (2.0, 1.96, 2.05)
    """
    n = len(logs)
    if n < 3:
        return None
    if n > 5:
        middle = statistics.median(logs)
        spread = 3 * 1.4826 * statistics.median(abs(one - middle) for one in logs) or 1e-9
        logs = [min(middle + spread, max(middle - spread, one)) for one in logs]
    mean = statistics.fmean(logs)
    student = STUDENT[n - 1] if n <= len(STUDENT) else 2.05
    half = max(0.02, student * statistics.stdev(logs) / math.sqrt(n))
    return Gain(math.exp(mean), math.exp(mean - half), math.exp(mean + half), n)


@dataclass
class Measuring:
    """The runs with something left out, within so many seconds."""

    runs: Runs
    seen: Seen
    budget: float
    say: Callable[[str], None]
    loads: list[float] = field(default_factory=list)
    refused: str = ""  # why the program does not run in a copy

    def __post_init__(self) -> None:
        self.begin = time.monotonic()
        self.rng = random.Random(7)
        seen = self.seen
        marks = seen.lead["marks"][seen.kind]
        self.start = max(4.0, marks[0] - min(one["born"] for one in seen.ranks))  # imports
        self.warm = max(3, min(10, seen.steps // 4))
        if seen.epoch and seen.steps >= 3 * seen.epoch and seen.epoch * seen.step < WINDOW:
            self.warm = max(self.warm, seen.epoch + 3)  # what ends an epoch is first done in full
        window = math.ceil(WINDOW / seen.step)
        if seen.epoch and seen.epoch * seen.step < max(14, self.budget / 8):
            room = (seen.steps - self.warm) // seen.epoch or 1
            window = seen.epoch * max(1, min(room, math.ceil(window / seen.epoch)))
        self.stop = min(seen.steps, self.warm + max(3, window))
        self.base: list[float] = []
        self.counting = self.reading = False

    def left(self) -> float:
        """Seconds of the budget that are left."""
        return self.budget - (time.monotonic() - self.begin)

    def measure(self, found: list[Candidate]) -> None:
        """Fill in the log ratios of these candidates."""
        self._reading(found)
        alive = [one for one in found if not one.failed]
        for apart in _APART:
            self._blocks([one for one in alive if one.block and _apart(one) == apart], 4)
        self._own([one for one in alive if not one.block])
        while self.left() > 0 and not self.refused:
            alive = [one for one in alive if self._open(one, found)]
            if not alive:
                return
            best = max(alive, key=_turn)
            alike = [c for c in alive if _apart(c) == _apart(best)]
            together = [one for one in alike if bool(one.block) == bool(best.block)]
            together = [one for one in together if _turn(one)[:2] == _turn(best)[:2]]
            together = sorted(together, key=_turn, reverse=True)[: 2 if best.block else 3]
            before = len(best.logs)
            if best.block:
                self._blocks(together, 10)
            else:
                self._own(together)
            if len(best.logs) == before and not best.failed:
                if gain(best.logs) is None:
                    best.failed = "there was too little time"
                alive.remove(best)
            for one in alive:
                if result := gain(one.logs):
                    self.say(
                        f"{one.key} {result.value:.2f} ({result.low:.2f} to {result.high:.2f}), "
                        f"{result.pairs} pairs"
                    )

    def _reading(self, found: list[Candidate]) -> None:
        """What fit reads within its step is no cause if it can be read in a small part of it."""
        inside = [one for one in found if one.aligned and self.seen.note("fit")]
        if not inside or self.left() < 0 or self.refused:
            return
        self.reading = True
        notes = [r["notes"] for r in self._run([], [], [], self.warm + 3).reports]
        self.reading = False
        seconds = min((one["read"] for one in notes if "read" in one), default=math.inf)
        if seconds < 0.12 * self.seen.step:
            found[:] = [one for one in found if one not in inside]

    def arithmetic(self) -> str:
        """The operations of a step, against the rate of a matrix product in the same process."""
        self.counting = True
        notes = [r["notes"] for r in self._run([], [], [], self.warm + 3).reports]
        found = next((one for one in notes if one.get("operations") and one.get("product")), None)
        if found is None or found["operations"] < 1e5:  # hidden in functions that a graph calls
            return ""
        rate = found["operations"] / self.seen.step
        return (
            f"{found['operations'] / 1e9:.3g} GFLOP in a step of each process are "
            f"{100 * rate / found['product']:.0f} % of what a matrix product reaches there "
            f"({found['product'] / 1e9:.3g} GFLOP/s, measured)."
        )

    def _open(self, one: Candidate, found: list[Candidate]) -> bool:
        """Is more to be known about it?"""
        if one.failed or (not one.logs and one.block):
            return False
        if len(one.logs) <= 2:  # not enough to say, unless there is nothing to it
            return max(one.logs, default=1.0) > (0.06 if len(one.logs) == 2 else -0.3)
        result = gain(one.logs)
        if result is None or result.high < one.limit:
            return False
        if result.value < 1.05 and len(one.logs) >= 6 and result.high < 1.5 * result.low:
            return False
        if not one.fix and any(self._explains(other, one) for other in found):
            return False
        return result.high / result.low > NARROW and len(one.logs) < (60 if one.block else 8)

    @staticmethod
    def _explains(other: Candidate, one: Candidate) -> bool:
        """Does a fix bring so much of this removal that it will take its place?"""
        same = other.fix and other.group == one.group != "" and bool(other.logs)
        return same and _saved(other) > 0.4 * _saved(one)

    # -- in blocks

    def _blocks(self, toggled: list[Candidate], pairs: int) -> None:
        toggled = [one for one in toggled if not one.failed]
        while toggled and self.left() > 0 and not self.refused:
            steps = sum(2 * one.block for one in toggled)
            room = min(LONG, max(6.0, self.left() - self.start)) / self.seen.step
            times = max(1, min(pairs, int(room / steps)))
            phases: list[Phase] = []
            for _ in range(times):
                for one in self.rng.sample(toggled, len(toggled)):
                    ways = self.rng.sample([one.names, []], 2)
                    phases += [(one.block, names, one) for names in ways]
            warm = self.seen.epoch if toggled[0].aligned else self.warm
            stop = warm + sum(steps for steps, _, _ in phases) + 1
            outcome = self._run([], phases, toggled, min(stop, self.seen.steps), warm)
            if outcome.failed:
                culprit = self._culprit(outcome, toggled)
                if culprit is None:
                    self.refused = self._told(outcome)
                    return
                culprit.failed = self._told(outcome)
                toggled = [one for one in toggled if one is not culprit]
                continue
            for one in toggled:
                one.logs += self._pairs(outcome, one, phases, warm)
            return

    def _culprit(self, outcome: OneRun, toggled: list[Candidate]) -> Candidate | None:
        """What was left out when the run failed."""
        last = [name for one in outcome.reports for _, names in one["switches"] for name in names]
        if not last:
            return toggled[0] if len(toggled) == 1 and self.base else None
        return next((one for one in toggled if last[-1] in one.names), None)

    def _pairs(
        self, outcome: OneRun, one: Candidate, phases: list[Phase], warm: int
    ) -> list[float]:
        settle = max(1, one.block // 5) if {*one.names} & {*SETTLE} else 0
        if one.aligned:  # what a new iterator costs depends on the epoch before it
            settle = self.seen.epoch
        ranks = [report for report in outcome.reports if not report["worker"]]
        at, times = warm, []
        for steps, names, of in phases:
            if of is one:
                a, b = at + settle, at + steps
                found = [self._seconds(r, a, b, outcome, one) for r in ranks]
                times.append((bool(names), statistics.fmean(found) if min(found) > 0 else 0.0))
            at += steps
        logs = []
        for (out, first), (_, second) in zip(times[::2], times[1::2], strict=True):
            if first and second:
                logs.append(math.log(second / first) if out else math.log(first / second))
        return logs

    def _seconds(self, report: Report, a: int, b: int, outcome: OneRun, one: Candidate) -> float:
        """Of the steps after the a-th up to the b-th; less the wait for cores that others took.

        The main thread's wait says nothing of compiled steps, which other threads compute.
        """
        marks = report["marks"].get(self.seen.kind, [])
        if b > len(marks):
            return 0.0
        seconds = marks[b - 1] - marks[a - 1]
        if outcome.load > 0.25 and not one.wall and self.seen.kind != "tf":
            seconds -= report["delay"][b - 1] - report["delay"][a - 1]
        return float(seconds)

    # -- in runs of their own

    def _own(self, several: list[Candidate]) -> None:
        """The original and each candidate once, in an order that turns."""
        order: list[Candidate | None] = [None, *(one for one in several if not one.failed)]
        if len(order) < 2 or self.left() < 0 or self.refused:
            return
        if len(self.base) % 2:
            order.reverse()
        times: dict[int, float] = {}
        for one in order:
            names = one.names if one else []
            scale = one.scale if one else 1.0
            warm = max(3, int(self.warm / scale))
            stop = warm + max(4, int((self.stop - self.warm) / scale))
            outcome = self._run(names, [], [one] if one else [], stop, warm)
            if outcome.failed and one is None:
                self.refused = self._told(outcome)
                return
            if outcome.failed and one is not None:
                one.failed = self._told(outcome)
                continue
            reports = [r for r in outcome.reports if not r["worker"]]
            wall = one or Candidate("", [], "", wall=any(c.wall for c in several))
            found = []
            for report in reports:
                last = len(report["marks"].get(self.seen.kind, []))
                if last > warm:
                    spent = self._seconds(report, warm, last, outcome, wall)
                    found.append(spent / (last - warm))
            times[id(one)] = statistics.fmean(found)
        alone = times.get(id(None))
        if alone is None:
            return
        self.base.append(alone)
        for one in several:
            if id(one) in times:
                one.logs.append(math.log(one.scale * alone / times[id(one)]))

    def _run(
        self, always: list[str], phases: list[Phase],
        of: list[Candidate], stop: int, warm: int = 0,
    ) -> OneRun:  # fmt: skip
        values = {"epoch": self.seen.epoch}
        env: dict[str, str] = {}
        asked: dict[str, list[tuple[str, Statement]]] = {}
        compiled: dict[str, list[Statement]] = {}
        for one in of:
            values |= one.values
            env |= one.env
            for step in one.compiled:
                compiled.setdefault(step.file, []).append(step)
                asked.setdefault(step.file, [])
            if one.statement:
                asked.setdefault(one.statement.file, []).append((one.names[0], one.statement))
        edits = {
            Path(file): ask(Path(file).read_text("utf-8"), found, compiled.get(file, []))
            for file, found in asked.items()
        }
        config = {
            "kind": self.seen.kind, "stop": stop, "warm": warm or self.warm, "always": always,
            "phases": [phase[:2] for phase in phases], "values": values,
            "count": self.counting, "read": self.reading,
        }  # fmt: skip
        limit = 30 + 2 * self.start + 4 * self.seen.step * stop
        outcome = self.runs.shorter(config, edits, env, limit)
        self.loads.append(outcome.load)
        what = ", ".join(one.key for one in of) or "nothing"
        turns = " in turns" if phases else ""
        failed = f": {outcome.failed}" if outcome.failed else ""
        self.say(f"{outcome.seconds:.0f} s with {what} left out or changed{turns}{failed}")
        return outcome

    def _told(self, outcome: OneRun) -> str:
        return self.runs.home(outcome.failed)


def _apart(one: Candidate) -> str:
    """Which of the runs with blocks it shares: some put hooks into all of a run's steps."""
    return "epochs" if one.block and one.aligned else "comm" if "comm" in one.names else ""


_APART = ("", "epochs", "comm")


def _turn(one: Candidate) -> tuple[bool, bool, float]:
    """The largest first; before it a fix that may explain a removal; last what is no fault."""
    may_explain = one.fix and one.group != "" and len(one.logs) < 3
    return one.key != "communication", may_explain, _saved(one)


def _saved(one: Candidate) -> float:
    """The share of time that it saves, as far as is known."""
    return 1 - math.exp(-statistics.fmean(one.logs)) if one.logs else 0.5
