"""The exercises of lecture 05, reading the gauges."""

from __future__ import annotations

from labkit.exercises.task import Task

__all__ = ["TASKS"]

TASKS = {
    "05.float32_bytes": Task(
        "60,000 images of 28 × 28 pixels, one byte a pixel. You turn them into float32. How many "
        "MB does the new array take?",
        lambda: 60_000 * 28 * 28 * 4 / 1e6,
        0.01,
        "Count the pixels first. How many bytes has a float32?",
        "MB",
        "47.04 MB as bytes, four times that as float32, and for a moment you hold both.",
    ),
    "05.one_of_four": Task(
        "A processor has four cores. One of them is busy for the whole span, the others rest. "
        "What does the gauge of the processor say, in per cent?",
        lambda: 100 / 4,
        0.0,
        "The processor's utilisation is the mean of its cores.",
        "%",
        "A program that keeps one core of four busy looks three quarters idle.",
    ),
    "05.kilowatt_hours": Task(
        "A machine with eight GPUs drew 1,515 W, on average, for 84 hours. How many kWh is that?",
        lambda: 1515 * 84 / 1000,
        0.01,
        "Power times time: watts times hours are watt-hours.",
        "kWh",
        "127 kWh, for one training of a large Transformer of 2017.",
    ),
    "05.images_per_joule": Task(
        "An epoch of 60,000 images took 12 s at 250 W on average. How many images is that for each "
        "joule?",
        lambda: 60_000 / (12 * 250),
        0.01,
        "First the joules: watts times seconds.",
        "images/J",
        "3,000 J for 60,000 images.",
    ),
    "05.which_gauge": Task(
        "A GPU shows 100 % utilisation and trains slowly. Which gauge tells you, without a "
        'program to compare with, that it is not well used: "temperature", "SM activity" or '
        '"memory used"?',
        lambda: "SM activity",
        0.0,
        "One of the three says how many of the multiprocessors had work.",
        "",
        "Low SM activity beside full utilisation: somebody is in, and most of the rooms are empty. "
        "Where a GPU has no such gauge, power far below its limit says much the same.",
    ),
    "05.too_short": Task(
        "An energy counter is refreshed every 0.1 s. labkit wants ten updates in a span. How many "
        "steps of 4 ms must the span hold at least?",
        lambda: 10 * 0.1 / 0.004,
        0.0,
        "Ten updates take how long? Then divide by the time of a step.",
        "steps",
        "One second of training, 250 steps. Then divide the joules by 250.",
    ),
}
