"""The exercises of lecture 04, what went wrong."""

from labkit.exercises.judges import number, word
from labkit.exercises.task import Task

TASKS = {
    "04.defects": Task(
        "How many different defects does labkit find in the classic benchmark?",
        number(9, "defects"),
        "A defect that occurs twice counts once. diagnose counts in the same way.",
        "labkit knows the classic defects only; your own program may have others.",
    ),
    "04.accuracy": Task(
        "Which one defect made the accuracy on two replicas so low? Give its name.",
        word("loss"),
        "Find the step of the ablation in which the accuracy on two replicas rises most.",
        "Without a meaningful loss the model learns almost nothing.",
    ),
    "04.cpu_seconds": Task(
        "Two threads compute for 3 s, side by side on two cores, and then wait 4 s for a GPU. "
        "How many seconds does time.process_time() count?",
        number(2 * 3, "s"),
        "It adds up the time that every thread spent on a core. A thread that waits uses no core.",
        "The wall-clock time is 7 s. CPU time can be shorter or longer: it is another quantity.",
    ),
    "04.bytes": Task(
        "Two replicas add up the gradients of 101,770 float32 parameters. "
        "How many bytes does each replica bring to a step?",
        number(4 * 101_770, "bytes"),
        "One gradient for each parameter, four bytes each.",
        "407 kB. A link of 10 GB/s moves them in 41 microseconds (modelled).",
    ),
    "04.fixed_cost": Task(
        "A step computes for 0.3 ms on one device. On two replicas each computes half of that, and "
        "communication and overhead add 0.6 ms. How many ms does the step take on two replicas?",
        number(0.3 / 2 + 0.6, "ms", within=0.01),
        "Halve the computation, then add the communication and the overhead.",
        "0.75 ms against 0.3 ms: two devices take 2.5 times as long, without any defect.",
    ),
}
