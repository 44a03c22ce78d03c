"""The exercises of lecture 00, start here."""

from __future__ import annotations

from labkit.exercises.task import Task
from labkit.kinds import modelled

__all__ = ["TASKS"]

TASKS = {
    "00.efficiency_words": Task(
        "Two replicas train 1.5 times as many images a second as one. Which share of the doubling "
        "did they reach, in per cent? (The speed-up, divided by the replicas.)",
        lambda: 100 * 1.5 / 2,
        0.001,
        "1.5 of a possible 2.",
        "%",
        "This share is called the efficiency; you will meet it in every comparison.",
    ),
    "00.kind": Task(
        "A paper's formula says that an all-reduce of 1 GB takes 20 ms on your network. You have "
        'not timed it. Is that number "measured", "recorded" or "modelled"?',
        lambda: modelled("").name,
        0.0,
        "Who has held a clock to it?",
        "",
        "A formula gave it. It becomes measured when you time it, and recorded when you write it "
        "down with place and day.",
    ),
}
