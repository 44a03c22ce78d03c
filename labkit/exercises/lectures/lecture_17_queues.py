"""The tasks of lecture 17: waiting in the queue."""

from itertools import product

from labkit.exercises.judges.answers import function_task, number
from labkit.exercises.task import Task

# devices, limit, free, hours, spare
CASES = [
    (devices, limit, free, hours, spare)
    for devices, limit, free, hours in product((1, 2, 3, 4), (1, 3, 24), (1, 3), (2, 3))
    for spare in range(free + 1)
]
TASKS = {
    "17.gpu_hours": Task(
        "2 nodes with 4 GPUs each for 3.5 hours. How many GPU hours are charged?",
        number(28, "GPU hours"),
        ("An allocation is charged, whether you use it or not.",),
        "answer = 2 * 4 * 3.5",
        "Also if TF_CONFIG was not set, and eight processes trained the same model eight times.",
        slips={7: "Each node has 4 GPUs.", 14: "There are two nodes."},
    ),
    "17.done_after": Task(
        "On one GPU a training runs 8 hours and need not wait. Four GPUs wait 3 hours and run at "
        "an efficiency of 90 %. After how many hours are you done with four?",
        number(5.222, "hours", within=0.01),
        ("Waiting plus running.", "Four at 90 % are as good as how many?"),
        """
running = 8 / (4 * 0.9)
answer = 3 + running
""",
        "Sooner than one GPU by almost three hours, for 8.9 GPU hours instead of 8.",
        slips={5.0: "At 90 % four GPUs are as good as 3.6.", 2.222: "They wait before they run."},
    ),
    "17.longest_wait": Task(
        "The same training. From how many hours of waiting on is one GPU the better choice?",
        number(5.778, "hours", within=0.01),
        ("Which wait is as long as the time that four GPUs save?",),
        """
running = 8 / (4 * 0.9)
answer = 8 - running
""",
        "5.8 hours. A longer wait in the queue costs more than the devices save.",
        slips={6.0: "At 90 % four GPUs are as good as 3.6.", 2.222: "That is how long four run."},
    ),
    "17.soonest": Task(
        "Of 8 devices A holds 4 until hour 8, and B, first in the queue, wants all 8 for 12 hours. "
        "You come at hour 1, with a training of 24 device hours at an efficiency of 100 %. "
        "With how many devices (1, 2, 3, 4, 6 or 8) are you done first?",
        number(4, "devices"),
        (
            "4 devices are free until hour 8, when B begins. A job that ends before may be "
            "backfilled.",
            "Let queue_model.queue try all six: n devices for 24 / n hours.",
        ),
        """
from labkit.cluster.queue_model import Request, queue

def done(devices):
    yours = Request("you", 1.0, devices, 24 / devices)
    placed = queue([Request("A", 0, 4, 8.0), Request("B", 0.5, 8, 12.0), yours], devices=8)
    return next(one.end for one in placed.started if one.request is yours)

answer = min((1, 2, 3, 4, 6, 8), key=done)
""",
        "Backfilling: on four free devices you end before B can begin; on three you would not.",
        difficulty=3,
        slips={8: "B, before you, needs all 8 from hour 8 to 20.", 6: "B has them until hour 20."},
    ),
    "17.my_start": function_task(
        "Write my_start(devices, limit, free, hours, spare): may a small job start now? It "
        "requests devices for at most limit hours, and `free` devices are free. The large job that "
        "is first in the queue can begin in `hours` hours, and leaves `spare` of the devices that "
        "are free now. Return True or False.",
        CASES,
        (
            "It may not delay the large job.",
            "Either it ends before the large job begins, or it takes devices that are spare.",
        ),
        """
def my_start(devices, limit, free, hours, spare):
    return devices <= free and (limit <= hours or devices <= spare)
""",
        "This is backfilling. It uses the limit of a job, not the time that the job will take.",
        slips=[
            (" or devices <= spare", "", "It may also take only spare devices."),
            ("limit <= hours or ", "", "It may also end before the large job begins."),
            (" and (limit <= hours or devices <= spare)", "", "It would delay the large job."),
        ],
        difficulty=2,
    ),
    "17.my_devices": function_task(
        "Write my_devices(waits, runs): with how many devices you are done first. Both are "
        "dictionaries by the number of devices: hours in the queue, and hours of the training.",
        [
            ({1: 2.0, 2: 1.5, 4: 1.0, 8: 9.0}, {1: 12.0, 2: 7.0, 4: 7.6, 8: 3.0}),
            ({1: 0.5, 2: 1.0, 4: 6.0}, {1: 12.0, 2: 6.5, 4: 3.5}),
            ({1: 0, 8: 1}, {1: 8, 8: 1}),
            ({4: 3, 1: 0}, {4: 2.3, 1: 5}),
            ({1: 0.5, 2: 1.0, 4: 6.0}, {4: 3.5, 2: 6.5, 1: 12.0}),
        ],
        ("From submission to the last step: add both.", "min takes a key."),
        """
def my_devices(waits, runs):
    return min(runs, key=lambda devices: waits[devices] + runs[devices])
""",
        "The number that runs fastest need not be it.",
        slips=[
            ("waits[devices] + ", "", "That runs fastest; add the wait."),
            (" + runs[devices]", "", "That waits least; add the run."),
        ],
    ),
}
