"""The tasks of lecture 00: start here."""

from labkit.exercises.judges.answers import function_task, number, word
from labkit.exercises.task import Task

MEAN = "def my_median(times):\n    return sum(times) / len(times)\n"
TASKS = {
    "00.efficiency_words": Task(
        "Two replicas have 1.5 times the throughput of one. The efficiency is the speed-up divided "
        "by the number of replicas. How large is it here, in per cent?",
        number(75, "%", within=0.001),
        ("The speed-up is 1.5, and the number of replicas is 2.", "1.5 / 2 is a share of 1."),
        """
speed_up, replicas = 1.5, 2
answer = 100 * speed_up / replicas  # 100 × a share of 1 is per cent
""",
        "At an efficiency of 100 % two replicas would have twice the throughput of one.",
        slips={150: "That is the speed-up.", 133.3: "That is its inverse."},
    ),
    "00.kind": Task(
        "A paper's formula says that an all-reduce of 1 GB takes 20 ms on your network. You have "
        'not timed it. Is that number "measured", "recorded" or "modelled"?',
        word("modelled", "modeled", "modelled number"),
        ("Was it timed, here or elsewhere?", "It is the result of a formula."),
        'answer = "modelled"  # a formula gave it; it was not timed',
        "A formula gave it. A time that you take is measured; kept with place and date, recorded.",
        slips={"recorded": "It was not timed."},
    ),
    "00.my_median": function_task(
        "Write my_median(times): the median of a list of times. Of an even number of times it is "
        "the mean of the two in the middle.",
        [([3, 1, 2],), ([5.0],), ([4, 1, 3, 2],), ([9, 1, 1, 1, 2, 30],)],
        ("Sort the times first.", "Of n sorted times, number n // 2 is in the middle."),
        """
def my_median(times):
    ordered, half = sorted(times), len(times) // 2
    if len(times) % 2:
        return ordered[half]
    return (ordered[half - 1] + ordered[half]) / 2
""",
        "One very long time changes the mean, and hardly changes the median.",
        slips=[
            ("sorted(times), ", "list(times), ", "Sort the times first."),
            ("if len(times) % 2:", "if True:", "Of an even number take the mean of two."),
            ("def my_median(times):", MEAN, "That is the mean: one long time changes it."),
        ],
    ),
    "00.my_speed_up": function_task(
        "Write my_speed_up(baseline, program): two lists of times. Return the median of the "
        "baseline divided by the median of the program.",
        [([3, 1, 2], [4, 4, 4]), ([2, 2, 2], [1, 1, 1]), ([1.0, 5.0], [1.0, 2.0, 9.0])],
        ("A program that takes half of the time has a speed-up of 2.", "statistics.median helps."),
        """
from statistics import median

def my_speed_up(baseline, program):
    return median(baseline) / median(program)
""",
        "Above 1 the program is faster than the baseline, below 1 it is slower.",
        slips=[
            (
                "median(baseline) / median(program)",
                "median(program) / median(baseline)",
                "That is the inverse of the speed-up.",
            ),
            ("import median", "import mean as median", "Those are means: take medians."),
        ],
    ),
}
