"""The exercises of lecture 02, one device."""

from labkit.exercises.judges import number
from labkit.exercises.task import Task

TASKS = {
    "02.steps_per_epoch": Task(
        "60,000 images in batches of 48. How many steps has one epoch?",
        number(60_000 / 48, "steps"),
        "Divide the images by the batch.",
        "1,250 steps, and 1,250 updates of the weights.",
    ),
    "02.fixed_cost": Task(
        "A step takes 0.40 ms with 32 images and 0.64 ms with 64. Assume that each step has the "
        "same overhead, and each image takes the same time. How many ms is the overhead?",
        number(0.40 - (0.64 - 0.40), "ms", within=0.01),
        "The difference is the time of 32 images. What is left of the first step without it?",
        "0.24 ms for 32 images, and 0.16 ms of overhead in every step.",
    ),
}
