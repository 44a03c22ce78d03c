"""The tasks of lecture 06: utilisation and energy."""

from labkit.exercises.judges.answers import function_task, number, word
from labkit.exercises.task import Task

OF_ALL = "(times[-1] - times[0]) * sum(watts) / len(watts)"
TASKS = {
    "06.float32_bytes": Task(
        "60,000 images have 28 × 28 pixels of one byte. You convert them to float32. How many MB "
        "does the new array take?",
        number(188.16, "MB", within=0.01),
        ("Count the pixels first.", "Each pixel becomes a float32 of 4 bytes."),
        """
pixels = 60_000 * 28 * 28
answer = pixels * 4 / 1e6
""",
        "47.04 MB as bytes, and four times that as float32. During the conversion you hold both.",
        slips={47.04: "Those are bytes; a float32 has four."},
    ),
    "06.one_of_four": Task(
        "A processor has four cores. One computes during the whole span, the others are idle. "
        "What is the utilisation of the processor, in per cent?",
        number(25, "%"),
        ("The processor's utilisation is the mean of its cores.",),
        "answer = (100 + 0 + 0 + 0) / 4",
        "One busy core of N adds 100/N per cent to the mean.",
        slips={100: "That is one core; take the mean of all four."},
    ),
    "06.kilowatt_hours": Task(
        "A machine with eight GPUs drew 1,515 W, on average, for 84 hours. How many kWh is that?",
        number(127.26, "kWh", within=0.01),
        ("Power times time: watts times hours are watt-hours.", "1,000 Wh are 1 kWh."),
        "answer = 1515 * 84 / 1000",
        "127 kWh for one training of the large Transformer: recorded hours, estimated watts.",
        slips={1018.08: "The 1,515 W are of all eight."},
    ),
    "06.images_per_joule": Task(
        "An epoch of 60,000 images took 12 s at 250 W on average. How many images per joule?",
        number(20, "images/J", within=0.01),
        ("First the joules: watts times seconds.", "Then images divided by joules."),
        """
joules = 250 * 12
answer = 60_000 / joules
""",
        "3,000 J for 60,000 images.",
        slips={5000: "That is images per second.", 0.05: "That is joules per image."},
    ),
    "06.which_metric": Task(
        "A GPU shows 100 % utilisation and trains slowly. Which metric can show that most of "
        'the GPU is unused: "temperature", "SM activity" or "memory used"?',
        word("SM activity", "SM"),
        (
            "Utilisation is the share of time in which at least one kernel ran, however small.",
            "Which of the three says how many multiprocessors had work?",
        ),
        'answer = "SM activity"  # the share of the multiprocessors that had work',
        "Utilisation counts the time with at least one kernel; SM activity is the share of the "
        "multiprocessors that had work. Where it is missing, power far below the limit is a sign.",
        difficulty=2,
        slips={
            "temperature": "It says how warm the GPU is, not how many multiprocessors work.",
            "memory used": "Memory can be full while most multiprocessors are idle.",
        },
    ),
    "06.too_short": Task(
        "An energy counter is updated every 0.1 s. labkit needs ten updates in a span. How many "
        "steps of 4 ms must the span hold at least?",
        number(250, "steps"),
        ("How long do ten updates take?", "Divide that by the time of a step, 0.004 s."),
        """
seconds = 10 * 0.1
answer = seconds / 0.004
""",
        "One second of training is 250 steps. Then divide the joules by 250.",
        slips={25: "Ten updates, not one.", 10: "Ten updates, not steps."},
    ),
    "06.my_utilisation": function_task(
        "Write my_utilisation(kernels, seconds): the utilisation of a GPU in per cent. kernels is "
        "a list of pairs (start, end); kernels may run at the same time.",
        [
            ([(0, 1), (2, 3)], 4),
            ([(0, 2), (1, 3)], 4),
            ([(0, 4), (1, 2), (1, 3)], 4),
            ([(5, 6), (0, 1)], 10),
            ([], 2),
        ],
        (
            "A moment in which two kernels run counts once.",
            "Sort by the start, and remember until when the GPU was busy.",
        ),
        """
def my_utilisation(kernels, seconds):
    busy, until = 0, 0
    for start, end in sorted(kernels):
        busy += max(0, end - max(start, until))
        until = max(until, end)
    return 100 * busy / seconds
""",
        "Many small kernels side by side and a single one give the same utilisation.",
        slips=[
            ("max(0, end - max(start, until))", "end - start", "Two kernels count once."),
            ("max(start, until)", "until", "The time between two kernels does not count."),
            ("sorted(kernels)", "kernels", "Sort the kernels by their start first."),
        ],
        difficulty=2,
    ),
    "06.my_energy": function_task(
        "Write my_energy(times, watts): the energy in joules from samples of the power. Between "
        "two samples take the mean of both.",
        [([0, 1, 2], [100, 100, 100]), ([0, 0.5, 2.0], [50, 150, 250]), ([3, 4], [0, 300])],
        ("Energy is power × time.", "Each pair of neighbouring samples gives one part."),
        """
def my_energy(times, watts):
    energy = 0
    for k in range(1, len(times)):
        energy += (times[k] - times[k - 1]) * (watts[k] + watts[k - 1]) / 2
    return energy
""",
        "It is the area under the power. A counter of energy needs no such sum.",
        slips=[
            ("(watts[k] + watts[k - 1]) / 2", "watts[k]", "Take the mean, not the later one."),
            ("return energy", f"return {OF_ALL}", "Each mean has a time of its own."),
        ],
    ),
}
