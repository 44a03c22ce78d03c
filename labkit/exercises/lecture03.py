"""The exercises of lecture 03, MirroredStrategy."""

from __future__ import annotations

from labkit.exercises.task import Task
from labkit.memory import footprint
from labkit.training.inputs import batch_sizes

__all__ = ["TASKS"]

TASKS = {
    "03.batch_per_replica": Task(
        "Strong scaling: the global batch is 256 and there are 8 replicas. How many images does "
        "each replica get in a step?",
        lambda: batch_sizes(256, 8, "strong")[1],
        0.0,
        "The strategy cuts the global batch into equal slices.",
        "images",
        "256 images shared by 8 replicas.",
    ),
    "03.steps_weak": Task(
        "Weak scaling: each of 4 replicas gets 50 images a step. How many steps has an epoch of "
        "60,000 images?",
        lambda: 60_000 / batch_sizes(50, 4, "weak")[0],
        0.0,
        "First the global batch: all replicas together.",
        "steps",
        "A global batch of 200, so a quarter of the steps that one device would need.",
    ),
    "03.gradient_bytes": Task(
        "The dense model has 101,770 float32 parameters. One replica brings its gradients to the "
        "all-reduce of every step. An epoch has 600 steps. How many MB does the replica bring?",
        lambda: 600 * footprint(101_770)["gradients"] / 1e6,
        0.01,
        "One float32 is 4 bytes; first the bytes of one step, then of all steps.",
        "MB",
        "407,080 bytes a step. The batch does not matter, only the number of steps.",
    ),
    "03.efficiency": Task(
        "Four replicas train 2.8 times as many images a second as one. What is the efficiency, in "
        "per cent?",
        lambda: 100 * 2.8 / 4,
        0.001,
        "Speed-up divided by the number of devices.",
        "%",
        "Three tenths of what was paid for went into communication and fixed costs.",
    ),
}
