"""Which defects of the naive benchmark mattered: mended one after the other, and measured in pairs.

Two runs on different minutes of a busy machine cannot be compared, so nothing here rests on that.
What a clock, a first epoch or an evaluation adds is read off within one run, statement by
statement. What else is mended is judged by training both versions in turn, round after round.
"""

from __future__ import annotations

import math
import random
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from labkit import plain
from labkit.kinds import Kind, LabError, count_text, percent_text, ratio_text, seconds_text
from labkit.progress import progress
from labkit.timing.judge import judge
from labkit.training.naive import BOTH, DEFECTS, NaiveResult, execute, ran

__all__ = ["Ladder", "Rung", "climb"]

# A defect that changes a time by less is of no interest in this lecture.
SMALL = 0.15
# 1000 test images: trainings that differ in their random numbers alone stay within this.
SMALL_ACCURACY = 0.04

# Why a defect may leave no trace; whether it does is measured.
_WHY_NOT = {
    "clock": "nothing waited and nothing ran in parallel; with a GPU the clocks part",
    "first epoch": "the epochs are long beside the start",
    "timed evaluation": "there are few images to evaluate",
    "loss": "the wrong loss costs as much time as the right one",
    "pipeline": "these images lie in no particular order, and shuffling so few is cheap",
    "different batch": "so few images train alike with either batch",
    "batch": "64 is what two replicas should get; on four it would be wrong",
    "float64": "these images are few; 60,000 of them would take 376 MB",
}


@plain.stored
@dataclass(frozen=True)
class Rung:
    """What was mended, what the program then prints, and what that changed."""

    mended: str
    one_seconds: float
    two_seconds: float
    one_accuracy: float
    two_accuracy: float
    changed: tuple[str, ...]
    """ "time", "accuracy", both or neither."""
    words: str

    @property
    def ratio(self) -> float:
        """How many times as long two replicas take."""
        return self.two_seconds / self.one_seconds


@plain.stored
@dataclass(frozen=True)
class Ladder:
    """The naive benchmark, mended defect by defect."""

    rungs: tuple[Rung, ...]
    images: int
    epochs: int
    rounds: int
    data: str
    kind: Kind

    def of(self, defect: str) -> Rung:
        """The rung on which a defect was mended."""
        for rung in self.rungs:
            if rung.mended == defect:
                return rung
        known = ", ".join(repr(rung.mended) for rung in self.rungs)
        raise LabError(f"There is no rung {defect!r}. Choose one of: {known}.")

    @property
    def mattered(self) -> tuple[str, ...]:
        """The defects that changed time or accuracy here."""
        return tuple(rung.mended for rung in self.rungs if rung.changed)

    @property
    def head(self) -> tuple[str, ...]:
        """The columns."""
        return (
            "mended, one after the other", "one device", "two replicas", "ratio",
            "accuracy on one", "on two", "what that did",
        )  # fmt: skip

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """A row for each rung."""
        return [
            (
                rung.mended,
                seconds_text(rung.one_seconds),
                seconds_text(rung.two_seconds),
                ratio_text(rung.ratio),
                percent_text(rung.one_accuracy),
                percent_text(rung.two_accuracy),
                rung.words,
            )
            for rung in self.rungs
        ]

    @property
    def footer(self) -> str:
        """How it was measured."""
        epochs = "epoch" if self.epochs == 1 else "epochs"
        return (
            f"{count_text(self.images)} images of {self.data}, {self.epochs} {epochs}; "
            f"{self.kind}. From 'timed evaluation' on, medians of {self.rounds} rounds in turn; "
            f"a change below {100 * SMALL:.0f} %, or {100 * SMALL_ACCURACY:.0f} points, "
            "is called none."
        )

    def __str__(self) -> str:
        rows = [self.head, *self.rows]
        widths = [max(len(row[column]) for row in rows) for column in range(len(self.head))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        return "\n".join([*lines, self.footer])

    __repr__ = __str__

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        from labkit.views.table import table

        html = table(self.head, self.rows, "The naive benchmark, mended", self.footer)
        return {"text/plain": str(self), "text/html": html}


def climb(*, images: int, epochs: int, rounds: int) -> Ladder:
    """Run the programs, train their models in turn, and tell what each mending changed."""
    if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1:
        raise LabError(f"rounds={rounds!r} is not a whole number from 1 on. 7 is a good one.")
    # Mending the clock or the evaluation changes what is read, not what is done.
    steps = [DEFECTS[:place] for place in range(3, len(DEFECTS) + 1)]
    with progress("naive benchmark", len(steps) + 2 + rounds) as advance:
        if not ran():
            execute(images=images, epochs=epochs)  # TensorFlow's own start belongs to no rung
        advance(1)
        naive, _ = execute(images=images, epochs=epochs)
        advance(2)
        results: list[NaiveResult] = []
        works: dict[tuple[int, str], Callable[[], object]] = {}
        for place, mended in enumerate(steps):
            before = results[-1] if results else None
            result, again = execute(mended, images=images, epochs=epochs, before=before)
            results.append(result)
            works |= {(place, who): work for who, work in again.items()}
            advance(3 + place)
        spent: dict[tuple[int, str], list[float]] = {key: [] for key in works}
        order, draw = list(works), random.Random(0)
        for number in range(rounds):
            # In an order drawn anew, so that a machine that drifts favours none of them.
            draw.shuffle(order)
            for key in order:
                spent[key].append(_seconds(works[key]))
            advance(len(steps) + 3 + number)
    for place in range(1, len(steps)):
        for who in BOTH:
            # The half that a mending does not touch is the half of the rung before.
            spent.setdefault((place, who), spent.get((place - 1, who), []))
    return Ladder(
        (*_read_off(naive, results[0], spent), *_judged(results, spent)),
        results[0].images,
        epochs,
        rounds,
        results[0].data,
        results[0].kind,
    )


def _seconds(work: Callable[[], object]) -> float:
    with warnings.catch_warnings():
        # Keras warns of the very thing that this lecture shows: a pipeline that is not shuffled.
        warnings.simplefilter("ignore")
        began = time.perf_counter()
        work()
        return time.perf_counter() - began


def _read_off(
    naive: NaiveResult, warm: NaiveResult, spent: dict[tuple[int, str], list[float]]
) -> list[Rung]:
    """The rungs that need no second run: the same statements, read otherwise."""
    whos = BOTH
    epoch = {who: statistics.median(spent[0, who]) for who in whos}
    start = {who: naive.cost(f"{who} fit").wall_seconds - epoch[who] for who in whos}
    check = {who: warm.cost(f"{who} evaluate").wall_seconds for who in whos}
    wall = {
        who: naive.cost(f"{who} fit").wall_seconds + naive.cost(f"{who} evaluate").wall_seconds
        for who in whos
    }
    printed = {"one": naive.one_seconds, "two": naive.two_seconds}
    rungs = [_rung("nothing", naive, printed, (), "this is what it prints")]
    apart = [wall[who] / printed[who] for who in whos]
    words = (
        f"the wall says {ratio_text(apart[0])} of that for one device, "
        f"{ratio_text(apart[1])} for two replicas"
    )
    rungs.append(_rung("clock", naive, wall, _time_if(apart), words))
    without = {who: epoch[who] + check[who] for who in whos}
    words = (
        f"the start took {seconds_text(start['one'])} of it on one device, "
        f"{seconds_text(start['two'])} on two replicas"
    )
    shares = [wall[who] / without[who] for who in whos]
    rungs.append(_rung("first epoch", warm, without, _time_if(shares), words))
    words = f"it took {seconds_text(check['one'])} and {seconds_text(check['two'])} of it"
    shares = [without[who] / epoch[who] for who in whos]
    rungs.append(_rung("timed evaluation", warm, epoch, _time_if(shares), words))
    return rungs


def _judged(
    results: Sequence[NaiveResult], spent: dict[tuple[int, str], list[float]]
) -> list[Rung]:
    """The rungs whose epochs were trained in turn with those of the rung before."""
    rungs = []
    for place, result in enumerate(results[1:], 1):
        before, changed, words = results[place - 1], [], []
        unsure = False
        for who, name in (("one", "one device"), ("two", "two replicas")):
            ratios = [
                math.log(old / new)
                for old, new in zip(spent[place - 1, who], spent[place, who], strict=True)
            ]
            said = judge("new", "old", ratios, same_within=SMALL)
            times = 1 / said.estimate.value
            unsure |= said.word == "cannot tell" and _large(times)
            if said.word in ("faster", "slower") and _large(times):
                changed.append("time")
                words.append(f"{name}: {ratio_text(times)} the time")
        for name, old, new in (
            ("one device", before.one_accuracy, result.one_accuracy),
            ("two replicas", before.two_accuracy, result.two_accuracy),
        ):
            if abs(new - old) > SMALL_ACCURACY:
                changed.append("accuracy")
                words.append(f"{name}: {100 * (new - old):+.0f} points of accuracy")
        medians = {who: statistics.median(spent[place, who]) for who in ("one", "two")}
        mended = result.mended[-1]
        if unsure and not words:
            words.append(f"cannot tell, the times jump too much; none expected: {_WHY_NOT[mended]}")
        text = "; ".join(words) or f"no change seen here: {_WHY_NOT[mended]}"
        rungs.append(_rung(mended, result, medians, tuple(dict.fromkeys(changed)), text))
    return rungs


def _rung(
    mended: str,
    result: NaiveResult,
    seconds: dict[str, float],
    changed: tuple[str, ...],
    words: str,
) -> Rung:
    if mended in _WHY_NOT and not changed and not words.startswith(("no change", "cannot tell")):
        words = f"no change seen here: {_WHY_NOT[mended]}"
    return Rung(
        mended, seconds["one"], seconds["two"], result.one_accuracy, result.two_accuracy,
        changed, words,
    )  # fmt: skip


def _time_if(ratios: Sequence[float]) -> tuple[str, ...]:
    return ("time",) if any(_large(ratio) for ratio in ratios) else ()


def _large(ratio: float) -> bool:
    return max(ratio, 1 / ratio) > 1 + SMALL if ratio > 0 else True
