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
it the same is done with a real busy loop, on this machine as it is now. Those rates are printed
only: they say as much about the hour as about the methods.

pyperf and torch are needed by this benchmark alone; one that is not installed is left out.
"""

from __future__ import annotations

import itertools
import math
import random
import re
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from harness import Row, main

import labkit.timing
from labkit.timing.judge import judge

ROUNDS = 20
DIFFERENCE = 0.02
DRIFT = 0.02
# What the course promises: at most so many false positives, at least so many differences found.
ALLOWED, PROMISED = 0.05, 0.95
# Which share of the calls is interrupted.
MACHINES = {"calm": 0.0, "busy": 0.04}
Verdict = Callable[[list[float], list[float]], str]


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


def machine(rng: random.Random, calls: int, interruptions: float) -> list[float]:
    """How much longer than ideal each of `calls` calls in a row takes, as logarithms."""
    drift = rng.choice((-1, 1)) * math.log1p(DRIFT)
    memory, slow = 0.8, rng.gauss(0, 0.006)
    noise = []
    for call in range(calls):
        slow = memory * slow + rng.gauss(0, 0.006 * math.sqrt(1 - memory**2))
        jitter = slow + rng.gauss(0, 0.008)
        interrupted = rng.random() < interruptions
        spike = math.log1p(rng.expovariate(1 / 0.2)) if interrupted else 0.0
        noise.append(drift * call / (calls - 1) + jitter + spike)
    return noise


def invented(
    rng: random.Random, slower: float, interleaved: bool, interruptions: float
) -> tuple[list[float], ...]:
    """Samples of two programs in the order in which a method takes them."""
    order = [[0, 1] for _ in range(ROUNDS)]
    if interleaved:
        for row in order:
            rng.shuffle(row)
        calls = list(itertools.chain.from_iterable(order))
    else:
        calls = [0] * ROUNDS + [1] * ROUNDS
    samples: tuple[list[float], ...] = ([], [])
    ideal = (0.010, 0.010 * (1 + slower))
    for program, noise in zip(calls, machine(rng, len(calls), interruptions), strict=True):
        samples[program].append(ideal[program] * math.exp(noise))
    return samples


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


def synthetic(methods: dict[str, Verdict], trials: int, interruptions: float) -> dict[str, Tally]:
    tallies = {name: Tally() for name in methods}
    for trial in range(trials):
        for name, verdict in methods.items():
            interleaved = name == "labkit"
            tally = tallies[name]
            equal = invented(random.Random(f"equal {trial}"), 0.0, interleaved, interruptions)
            apart = invented(
                random.Random(f"apart {trial}"), DIFFERENCE, interleaved, interruptions
            )
            tally.false += verdict(*equal) in ("faster", "slower")
            tally.found += verdict(*apart) == "slower"
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
            words = {"labkit": ours.verdict("second", over="first").word}
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
    for name, interruptions in MACHINES.items():
        tallies = synthetic(methods, 250 if quick else 3000, interruptions)
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
