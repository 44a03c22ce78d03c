"""Synchronous steps of eight ranks: in every step all wait for the slowest one."""

from __future__ import annotations

import random

from labkit.kinds import modelled
from labkit.views.lanes import Bar, BarStyle, Lanes
from labkit.views.sketch import Sketch

ALT = (
    "Timelines of eight ranks over five synchronous steps. A rank computes for 100 ms or a little "
    "more, and in one of ten steps for 160 ms; then it waits until all others are done, and all "
    "take part in an all-reduce of 20 ms. On average a rank computes for 111 ms, but each step "
    "lasts as long as its slowest rank: 162 ms with the all-reduce."
)
RANKS, STEPS, ALL_REDUCE = 8, 5, 0.020
STATES = {
    "waits": BarStyle("waits for the slowest", None),
    "computes": BarStyle("computes", 0),
    "all-reduce": BarStyle("all-reduce", 2),
}


def draw() -> Sketch:
    dice = random.Random(5)
    bars, now, computed = [], 0.0, []
    for _ in range(STEPS):
        times = [0.1 + dice.uniform(0, 0.01) + 0.06 * (dice.random() < 0.1) for _ in range(RANKS)]
        done = now + max(times)
        for rank, seconds in enumerate(times):
            bars.append(Bar(rank, "waits", now, done))
            bars.append(Bar(rank, "computes", now, now + seconds))
            bars.append(Bar(rank, "all-reduce", done, done + ALL_REDUCE))
        computed += times
        now = done + ALL_REDUCE
    mean, step = sum(computed) / len(computed), now / STEPS
    assert f"for {1000 * mean:.0f} ms, but" in ALT
    assert f"{1000 * step:.0f} ms with" in ALT
    return Lanes(
        "Every step waits for its slowest rank",
        f"A rank computes for {1000 * mean:.0f} ms on average; a step takes {1000 * step:.0f} ms.",
        bars, STATES, [f"rank {rank}" for rank in range(RANKS)],
        modelled("100 to 110 ms, in one of ten steps 60 ms more, seed 5; all-reduce 20 ms"),
    ).board  # fmt: skip
