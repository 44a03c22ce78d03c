"""The exercises of lecture 02, one device."""

from __future__ import annotations

from labkit.exercises.task import Task

__all__ = ["TASKS"]

TASKS = {
    "02.steps_per_epoch": Task(
        "60,000 images in batches of 48. How many steps has one epoch?",
        lambda: 60_000 / 48,
        0.0,
        "Divide the images by the batch.",
        "steps",
        "1,250 steps, and as many updates of the weights.",
    ),
    "02.fixed_cost": Task(
        "A step takes 0.40 ms with 32 images and 0.64 ms with 64. Suppose a fixed cost for each "
        "step, and a cost for each image. How large is the fixed cost?",
        lambda: 0.40 - 32 * (0.64 - 0.40) / 32,
        0.01,
        "The 32 further images cost the difference. What is left of the first step without them?",
        "ms",
        "0.24 ms for 32 images, and 0.16 ms before the first of them.",
    ),
}
