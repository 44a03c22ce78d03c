"""The exercises of lecture 05, utilisation, power and energy."""

from labkit.exercises.judges import number, word
from labkit.exercises.task import Task

TASKS = {
    "05.float32_bytes": Task(
        "60,000 images have 28 × 28 pixels of one byte. You convert them to float32. How many MB "
        "does the new array take?",
        number(60_000 * 28 * 28 * 4 / 1e6, "MB", within=0.01),
        "Count the pixels first. How many bytes does a float32 need?",
        "47.04 MB as bytes, and four times that as float32. During the conversion you hold both.",
    ),
    "05.one_of_four": Task(
        "A processor has four cores. One computes during the whole span, the others are idle. "
        "What is the utilisation of the processor, in per cent?",
        number(100 / 4, "%"),
        "The processor's utilisation is the mean of its cores.",
        "One busy core of N adds 100/N per cent to the mean.",
    ),
    "05.kilowatt_hours": Task(
        "A machine with eight GPUs drew 1,515 W, on average, for 84 hours. How many kWh is that?",
        number(1515 * 84 / 1000, "kWh", within=0.01),
        "Power times time: watts times hours are watt-hours.",
        "127 kWh for one training of the large Transformer: recorded hours, estimated watts.",
    ),
    "05.images_per_joule": Task(
        "An epoch of 60,000 images took 12 s at 250 W on average. How many images per joule?",
        number(60_000 / (12 * 250), "images/J", within=0.01),
        "First the joules: watts times seconds.",
        "3,000 J for 60,000 images.",
    ),
    "05.which_metric": Task(
        "A GPU shows 100 % utilisation and trains slowly. Which metric can show that most of "
        "the GPU is unused: "
        '"temperature", "SM activity" or "memory used"?',
        word("SM activity"),
        "Which of them says how many multiprocessors had work?",
        "Utilisation counts the time with at least one kernel; SM activity is the share of the "
        "multiprocessors that had work. Where it is missing, power far below the limit is a sign.",
    ),
    "05.too_short": Task(
        "An energy counter is updated every 0.1 s. labkit needs ten updates in a span. How many "
        "steps of 4 ms must the span hold at least?",
        number(10 * 0.1 / 0.004, "steps"),
        "How long do ten updates take? Divide that by the time of a step.",
        "One second of training is 250 steps. Then divide the joules by 250.",
    ),
}
