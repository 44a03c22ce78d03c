"""The exercises of lecture 04, what went wrong."""

from __future__ import annotations

from labkit.exercises.task import Task
from labkit.memory import footprint

__all__ = ["TASKS"]


def _count() -> float:
    from labkit.training import classic_benchmark, diagnose

    return len(diagnose(classic_benchmark.program()).names)


TASKS = {
    "04.defects": Task(
        "How many different defects does labkit find in the classic benchmark?",
        _count,
        0.0,
        "Count names, not places: a defect that is there twice counts once. diagnose counts too.",
        "defects",
        "And labkit only knows the classic ones.",
    ),
    "04.accuracy": Task(
        "Which one defect took the accuracy on two replicas down to chance? Give its name.",
        lambda: "loss",
        0.0,
        "Look for the step of the ablation in which the accuracy on two replicas jumps up.",
        "",
        "The other defects made the times wrong; this one made the model wrong.",
    ),
    "04.cpu_seconds": Task(
        "Two threads compute for 3 s, side by side on two cores, and then wait 4 s for a GPU. "
        "How many seconds does time.process_time() count?",
        lambda: 2 * 3.0,
        0.0,
        "It adds up what every thread spent on a core. What does waiting cost on a core?",
        "s",
        "The wall says 7 s. It can be less than the wall, or more: it is another quantity.",
    ),
    "04.bytes": Task(
        "Two replicas add up the gradients of 101,770 float32 parameters. "
        "How many bytes does each replica bring to a step?",
        lambda: footprint(101_770)["gradients"],
        0.0,
        "One gradient for each parameter, four bytes each.",
        "bytes",
        "That is a photo's worth: nothing that a link between two GPUs would notice.",
    ),
    "04.fixed_cost": Task(
        "A step computes for 0.3 ms on one device. On two replicas each computes half of that, and "
        "the step costs 0.6 ms more to start and to all-reduce. How many ms does it take on two?",
        lambda: 0.3 / 2 + 0.6,
        0.01,
        "Halve the computing, then add what does not shrink.",
        "ms",
        "0.75 ms against 0.3 ms: two devices are two and a half times slower, without any defect.",
    ),
}
