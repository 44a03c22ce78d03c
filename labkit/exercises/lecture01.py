"""The exercises of lecture 01, why distribute."""

from __future__ import annotations

from labkit.exercises.task import Task
from labkit.memory import Data, Machine, Model, choose, footprint

__all__ = ["TASKS"]


def _strategy() -> str:
    photos = choose(
        Model(25e6, activation_bytes=90e6),
        Data(1.28e6, example_bytes=600e3, batch=64),
        Machine(24e9, devices=4),
    )
    return photos.strategy.rpartition(".")[2]


TASKS = {
    "01.bytes_per_step": Task(
        "A model has 1,199,882 parameters in float32. How many bytes of gradients does each "
        "replica bring to the all-reduce in one step?",
        lambda: footprint(1_199_882)["gradients"],
        0.0,
        "Each parameter has one gradient of the same type. How many bytes has a float32?",
        "bytes",
        "One gradient per parameter, four bytes each. The batch size does not matter.",
    ),
    "01.adam_memory": Task(
        "A model has 3 billion parameters. How many GB do weights, gradients and Adam's two "
        "moments take, all in float32?",
        lambda: footprint(3e9, convention="float32 adam").state / 1e9,
        0.01,
        "Count the float32 numbers that each parameter needs: four kinds of them.",
        "GB",
        "Weight, gradient and two moments: 4 × 4 bytes for each parameter, before any activation.",
    ),
    "01.steps_per_epoch": Task(
        "64,000 images, 2 replicas, 32 images per replica. How many steps has one epoch?",
        lambda: 64_000 / (2 * 32),
        0.0,
        "Divide by the global batch: what both replicas take together.",
        "steps",
        "The global batch is 64, and 64,000 images are a thousand of them.",
    ),
    "01.link_seconds": Task(
        "The gradients of 350 million float32 parameters cross a link of 0.125 GB/s once. "
        "How many seconds does that take?",
        lambda: footprint(350e6)["gradients"] / 0.125e9,
        0.02,
        "First the bytes of the gradients, then divide by the bytes per second.",
        "s",
        "1.4 GB over 0.125 GB/s. A step that computes for less than this mostly waits.",
    ),
    "01.uneven_halves": Task(
        "Replica 0 has 30 examples and a mean gradient of 1. Replica 1 has 10 examples and a mean "
        "gradient of 5. What is the mean gradient of all 40 examples?",
        lambda: (30 * 1.0 + 10 * 5.0) / 40,
        0.01,
        "The plain average of 1 and 5 treats 10 examples as if they were 30. Weight them.",
        "",
        "Each mean counts as often as it has examples: (30 × 1 + 10 × 5) / 40.",
    ),
    "01.which_strategy": Task(
        "25 million parameters, 1.28 million photos that may be copied, one machine with four "
        "equal GPUs of 24 GB. Which class of tf.distribute do you begin with?",
        _strategy,
        0.0,
        "Walk the decision tree: does a step fit on one device, and how many machines are there?",
        "",
        "The step fits, the devices are equal, and they sit in one machine.",
    ),
}
