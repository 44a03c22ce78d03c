"""How often a comparison is wrong: labkit.compare beside pyperf's and torch's.

Two programs are timed, 20 calls each, and every method gives its verdict. When they are equal,
each "faster" or "slower" is a false positive. When the second takes 2 % longer, a method has
found it if it says so. Every method sees the same machine: a drift of 2 % up or down over the
run, jitter of 1 %, calls that resemble their neighbours; a busy machine also interrupts one call
in 25, by a fifth on average. Each method takes its 40 calls in its own order: labkit both programs
in each round, pyperf and torch one program after the other, as `pyperf compare_to` and
`torch.utils.benchmark` do. The verdicts are theirs:

- pyperf: `pyperf._compare.CompareResult.significant` (a t-test at 95 %) and its mean ratio;
- torch: `torch.utils.benchmark.Compare` marks as best every candidate within 1 % of the best
  median; a candidate without the mark is slower.

The invented machines are exactly repeatable (fixed seeds) and make the table at the end. Before
it the calibration of labkit's interval is printed, and the same trial with a real busy loop, on
this machine as it is now: those rates say as much about the hour as about the methods.

pyperf and torch are needed by this benchmark alone; one that is not installed is left out.
"""

from __future__ import annotations

import math
import re
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from harness import Row, main

import labkit.timing
from labkit.timing.intervals import shift
from labkit.timing.verdict import CONFIDENCE, judge

ROUNDS = 20
DIFFERENCE = 0.02
DRIFT = 0.02
# What the course promises: at most so many false positives, at least so many differences found.
ALLOWED, PROMISED = 0.05, 0.95
Verdict = Callable[[list[float], list[float]], str]


@dataclass(frozen=True)
class Noise:
    """Share of interrupted calls; slow noise: its size and how much a call keeps of the last."""

    interruptions: float = 0.0
    slow: float = 0.006
    memory: float = 0.8


MACHINES = {"calm": Noise(), "busy": Noise(interruptions=0.04)}
# Only for the calibration: noise on which intervals for independent calls fail.
SLOW = {"slow waves": Noise(slow=0.03, memory=0.98)}


# --- the methods: what each says about the second program, from its samples of both


def by_labkit(first: list[float], second: list[float]) -> str:
    ratios = [math.log(a / b) for a, b in zip(first, second, strict=True)]
    return judge("second", "first", ratios).word


def pyperf_verdict() -> Verdict | None:
    try:
        import pyperf
        from pyperf._compare import CompareData, CompareResult
    except ImportError:
        return None

    def verdict(first: list[float], second: list[float]) -> str:
        benchmarks = [
            # One process of pyperf gives one run; here with one value in each.
            pyperf.Benchmark(
                [pyperf.Run([value], collect_metadata=False, metadata={"name": "program"})
                 for value in values]
            )
            for values in (first, second)
        ]  # fmt: skip
        result = CompareResult(*(CompareData("program", one) for one in benchmarks))
        if not result.significant:
            return "cannot tell"
        return "slower" if result.norm_mean > 1 else "faster"

    return verdict


def torch_verdict() -> Verdict | None:
    try:
        from torch.utils.benchmark import Compare, Measurement, TaskSpec
    except ImportError:
        return None

    def verdict(first: list[float], second: list[float]) -> str:
        compare = Compare(
            [
                Measurement(
                    1,
                    list(times),
                    TaskSpec(name, "", label="trial", sub_label=name, description="time"),
                )
                for name, times in (("first", first), ("second", second))
            ]
        )
        compare.colorize()
        best = {
            name: bool(re.search(rf"^\s*{name}\b.*\x1b\[92m", str(compare), re.MULTILINE))
            for name in ("first", "second")
        }
        if best["first"] == best["second"]:
            return "cannot tell"
        return "slower" if best["first"] else "faster"

    return verdict


# --- the machine, invented


def invented(
    rng: np.random.Generator, noise: Noise, slower: list[float], rounds: int, interleaved: bool
) -> np.ndarray:
    """The logarithms of the seconds of programs, [program, round], as a method takes its calls."""
    programs = len(slower)
    calls = programs * rounds
    drift = rng.choice((-1, 1)) * math.log1p(DRIFT) * np.arange(calls) / (calls - 1)
    kicks = noise.slow * math.sqrt(1 - noise.memory**2) * rng.standard_normal(calls)
    kicks[0] = noise.slow * rng.standard_normal()
    # Each call keeps a share of the noise of the call before it.
    waves = np.tril(noise.memory ** np.abs(np.subtract.outer(range(calls), range(calls)))) @ kicks
    spikes = np.log1p(rng.exponential(0.2, calls)) * (rng.random(calls) < noise.interruptions)
    machine = drift + waves + 0.008 * rng.standard_normal(calls) + spikes
    if interleaved:
        order = rng.permuted(np.tile(np.arange(programs), (rounds, 1)), axis=1).ravel()
    else:
        order = np.repeat(np.arange(programs), rounds)
    samples = [machine[order == program] for program in range(programs)]
    return np.array(samples) + np.log1p(slower)[:, None]


def calibration(trials: int) -> None:
    """How often labkit's interval is wrong, without any band of equality around 1."""
    print(f"\nThe interval of labkit.compare, {trials} trials a line, {CONFIDENCE:.0%}")
    print(f"{'':10} {'rounds':>6}{'equal, missed':>23}{'2 %, missed':>23}", end="")
    print(f"{'any of 3 equal, missed':>25}")
    for name, noise in {**MACHINES, **SLOW}.items():
        for rounds in (8, ROUNDS):
            rng = np.random.default_rng(rounds)
            missed = np.zeros(3, dtype=int)
            for _ in range(trials):
                a, b, c = invented(rng, noise, [0.0, 0.0, DIFFERENCE], rounds, True)
                missed[0] += _misses(b - a, 0.0, CONFIDENCE)
                missed[1] += _misses(c - a, math.log1p(DIFFERENCE), CONFIDENCE)
                a, *others = invented(rng, noise, [0.0] * 4, rounds, True)
                each = 1 - (1 - CONFIDENCE) / len(others)
                missed[2] += any(_misses(other - a, 0.0, each) for other in others)
            cells = "".join(f"{rate_text(count, trials):>24}" for count in missed)
            print(f"{name:10} {rounds:>6}{cells}", flush=True)


def _misses(differences: np.ndarray, truth: float, confidence: float) -> bool:
    found = shift(differences.tolist(), confidence)
    return not found.low <= truth <= found.high


# --- the machine, real


def busy(turns: int) -> Callable[[], int]:
    def work() -> int:
        total = 0
        for turn in range(turns):
            total += turn
        return total

    return work


def calibrated(seconds: float) -> int:
    """How many turns of the busy loop take about so long here."""
    turns = 10_000
    times = []
    for _ in range(15):
        start = time.perf_counter()
        busy(turns)()
        times.append(time.perf_counter() - start)
    return max(1000, round(turns * seconds / statistics.median(times)))


def timed_in_blocks(works: list[Callable[[], int]]) -> tuple[list[float], ...]:
    samples: tuple[list[float], ...] = ([], [])
    for work, times in zip(works, samples, strict=True):
        for call in range(ROUNDS + 3):
            start = time.perf_counter()
            work()
            spent = time.perf_counter() - start
            if call >= 3:  # As many to warm up as labkit takes.
                times.append(spent)
    return samples


# --- the trials


@dataclass
class Tally:
    """How often a method was wrong about equals, and right about a real difference."""

    false: int = 0
    found: int = 0
    trials: int = 0


def synthetic(methods: dict[str, Verdict], trials: int, noise: Noise) -> dict[str, Tally]:
    tallies = {name: Tally() for name in methods}
    for trial in range(trials):
        for name, verdict in methods.items():
            tally, interleaved = tallies[name], name == "labkit"
            equal, apart = (
                0.01 * np.exp(invented(rng, noise, [0.0, slower], ROUNDS, interleaved))
                for rng, slower in (
                    (np.random.default_rng([0, trial]), 0.0),
                    (np.random.default_rng([1, trial]), DIFFERENCE),
                )
            )
            tally.false += verdict(*equal.tolist()) in ("faster", "slower")
            tally.found += verdict(*apart.tolist()) == "slower"
            tally.trials += 1
    return tallies


def real(methods: dict[str, Verdict], trials: int) -> dict[str, Tally]:
    turns = calibrated(0.001)
    tallies = {name: Tally() for name in methods}
    for trial in range(trials):
        for slower in (0.0, DIFFERENCE):
            works = [busy(turns), busy(round(turns * (1 + slower)))]
            both = dict(zip(("first", "second"), works, strict=True))
            ours = labkit.timing.compare(both, rounds=ROUNDS, seed=trial)
            words = {"labkit": ours.verdict("second").word}
            blocks = timed_in_blocks(works)
            words |= {name: methods[name](*blocks) for name in methods if name != "labkit"}
            for name, word in words.items():
                if slower:
                    tallies[name].found += word == "slower"
                else:
                    tallies[name].false += word in ("faster", "slower")
                    tallies[name].trials += 1
    return tallies


# --- the report


def rate_text(count: int, trials: int) -> str:
    low, high = wilson(count, trials)
    return f"{100 * count / trials:5.1f} % ({100 * low:.1f}–{100 * high:.1f} %)"


def wilson(count: int, trials: int, z: float = 1.96) -> tuple[float, float]:
    """The interval of a rate, at 95 %."""
    share = count / trials
    middle = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials**2))
    half /= 1 + z * z / trials
    return max(0.0, middle - half), min(1.0, middle + half)


def ratio_of_rates(above: int, below: int, trials: int) -> tuple[float, float, float]:
    """One rate over the other, with a 95 % interval; half a case is added, so that 0 is no end."""
    top, bottom, whole = above + 0.5, below + 0.5, trials + 0.5
    ratio = top / bottom
    spread = math.sqrt(max(0.0, 1 / top + 1 / bottom - 2 / whole))
    return ratio, ratio * math.exp(-1.96 * spread), ratio * math.exp(1.96 * spread)


def shown(title: str, tallies: dict[str, Tally]) -> None:
    trials = next(iter(tallies.values())).trials
    print(f"\n{title}, {trials} trials of {ROUNDS} calls each (rates with 95 % intervals)")
    print(f"{'':8}{'false positives, equal':>28}{'2 % difference found':>28}")
    for name, tally in tallies.items():
        false, found = rate_text(tally.false, trials), rate_text(tally.found, trials)
        print(f"{name:8}{false:>28}{found:>28}", flush=True)


def rows_of(tallies: dict[str, Tally], where: str) -> list[Row]:
    ours = tallies["labkit"]
    # Whoever has none of the peers still gets the two promises of the course.
    allowed = ratio_of_rates(round(ALLOWED * ours.trials), ours.false, ours.trials)
    share, ends = ours.found / ours.trials, wilson(ours.found, ours.trials)
    rows = [
        Row(f"false positives, allowed / ours ({where})", f"{ALLOWED:.0%} allowed", *allowed),
        Row(
            f"2 % found, ours / promised ({where})",
            f"{PROMISED:.0%} promised",
            *(value / PROMISED for value in (share, *ends)),
        ),
    ]
    for name, theirs in tallies.items():
        if name == "labkit":
            continue
        fewer = ratio_of_rates(theirs.false, ours.false, ours.trials)
        more = ratio_of_rates(ours.found, theirs.found, ours.trials)
        rows.append(Row(f"false positives, theirs / ours ({where})", name, *fewer))
        rows.append(Row(f"2 % found, ours / theirs ({where})", name, *more))
    return rows


def results(quick: bool) -> list[Row]:
    methods: dict[str, Verdict] = {"labkit": by_labkit}
    peers: list[tuple[str, Any]] = [("pyperf", pyperf_verdict()), ("torch", torch_verdict())]
    for name, verdict in peers:
        if verdict is None:
            print(f"{name} is not installed and is left out: pip install {name} to see it here.")
        else:
            methods[name] = verdict
    rows = []
    calibration(200 if quick else 2000)
    for name, noise in MACHINES.items():
        tallies = synthetic(methods, 250 if quick else 3000, noise)
        shown(f"Invented {name} machine, 2 % drift", tallies)
        ours = tallies["labkit"]
        false, found = ours.false / ours.trials, ours.found / ours.trials
        print(f"  at most 5 % false positives: {'reached' if false <= ALLOWED else 'MISSED'}")
        print(f"  at least 95 % found: {'reached' if found >= PROMISED else 'MISSED'}")
        rows += rows_of(tallies, f"{name} machine")
    shown("This machine now, a busy loop of 1 ms", real(methods, 25 if quick else 200))
    return rows


if __name__ == "__main__":
    sys.exit(main(results, __doc__))
