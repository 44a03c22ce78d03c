"""The tasks of lecture 05: what went wrong."""

from typing import Any

from labkit.exercises.judges.answers import function_task, number, word
from labkit.exercises.judges.training_loops import input_pipeline
from labkit.exercises.task import Task, Wrong

WAITS = "A thread that waits uses no core."


def _invalid(answer: Any) -> None:
    for wrong in sorted({*answer} ^ {1, 2, 3, 5, 6}):
        says = "is not in your list. Does it change what is timed, or the work of one side?"
        if wrong in answer:
            says = "is no defect: the clock counts it rightly, and both sides have it."
        raise Wrong(f"{wrong} {says}")


TASKS = {
    "05.defects": Task(
        "Which of the seven things make the comparison invalid? Give their numbers in a list.",
        _invalid,
        (
            "Does the clock count anything but the seconds of training?",
            "Do both sides do the same work?",
        ),
        "defects = [1, 2, 3, 5, 6]  # 4 and 7 belong to the training of both sides",
        "1 to 3 change what is timed, and with 5 and 6 the two sides do different work.",
    ),
    "05.accuracy": Task(
        "Which one defect made the accuracy on two replicas so low? Give its name.",
        word("loss", "wrong loss", "loss function", "categorical_crossentropy", "from_logits"),
        ("Which defect makes the gradient of every image wrong? Others change order or seconds.",),
        'answer = "loss"  # the other defects change which images are used when, or the seconds',
        "Without a meaningful loss the model learns almost nothing.",
        slips={"clock": "It changes seconds.", "shuffle": "See its row in the ablation."},
    ),
    "05.cpu_seconds": Task(
        "Two threads compute for 3 s, side by side on two cores, and then wait 4 s for a GPU. "
        "How many seconds does time.process_time() count?",
        number(6, "s"),
        (
            "It adds up the time that every thread spent on a core.",
            "A thread that waits uses no core.",
        ),
        "answer = 2 * 3 + 2 * 0  # two threads, 3 s on a core each; waiting adds nothing",
        "The wall-clock time is 7 s. CPU time can be shorter or longer: it is another quantity.",
        difficulty=2,
        slips={7: "That is wall-clock time.", 14: WAITS, 10: WAITS},
    ),
    "05.my_dataset": Task(
        "Write my_dataset(images, labels, batch) with tf.data: every image once an epoch with its "
        "label, in batches, in an order that is new in each epoch and mixes the whole data. Keep "
        "the last, smaller batch.",
        input_pipeline,
        (
            "tf.data.Dataset.from_tensor_slices((images, labels)) keeps both together.",
            "shuffle(n) chooses among the next n images only. How large must n be?",
            "What comes first, shuffle or batch?",
        ),
        """
def my_dataset(images, labels, batch):
    dataset = tf.data.Dataset.from_tensor_slices((images, labels))
    return dataset.shuffle(len(images)).batch(batch).prefetch(tf.data.AUTOTUNE)
""",
        "With a buffer as large as the data every image can come at any place.",
        difficulty=2,
    ),
    "05.bytes": Task(
        "Two replicas add up the gradients of 101,770 float32 parameters. "
        "How many bytes does each replica contribute to a step?",
        number(407_080, "bytes"),
        ("One gradient for each parameter, four bytes each.",),
        "answer = 101_770 * 4",
        "407 kB. A link of 10 GB/s moves them in 41 microseconds (modelled).",
        slips={814_160: "That is what both contribute.", 101_770: "A float32 has four bytes."},
    ),
    "05.fixed_cost": Task(
        "A step computes for 0.3 ms on one device. On two replicas each computes half of that, and "
        "communication and overhead add 0.6 ms. How many ms does the step take on two replicas?",
        number(0.75, "ms", within=0.01),
        ("Halve the computation.", "Then add the communication and the overhead, once."),
        """
computation = 0.3 / 2
answer = computation + 0.6
""",
        "0.75 ms against 0.3 ms: two devices take 2.5 times as long, without any defect.",
        slips={
            0.9: "Each replica computes half of the 0.3 ms.",
            0.45: "Add the 0.6 ms once, undivided.",
        },
    ),
    "05.my_cpu_seconds": function_task(
        "Write my_cpu_seconds(threads): what time.process_time() counts. threads has for each "
        "thread a pair: the seconds in which it computes, and the seconds in which it waits.",
        [([(3, 4), (3, 4)],), ([(1.5, 0)],), ([(0, 9), (2, 1), (2, 1)],)],
        ("A thread that waits uses no core.", "The threads are added up."),
        """
def my_cpu_seconds(threads):
    return sum(computes for computes, waits in threads)
""",
        "Wall-clock time is another number: the threads compute side by side, and waiting counts.",
        slips=[
            ("sum(computes", "max(computes + waits", "That is wall-clock time."),
            ("sum(computes", "sum(computes + waits", WAITS),
        ],
    ),
    "05.my_step": function_task(
        "Write my_step(compute, nbytes, bandwidth, overhead, replicas): the seconds of a step. The "
        "replicas divide the computation; two or more also send nbytes over the link and have the "
        "overhead.",
        [
            (0.0003, 407_080, 10e9, 0.0005, 1),
            (0.0003, 407_080, 10e9, 0.0005, 2),
            (0.5, 5e6, 1e9, 0.001, 8),
        ],
        ("One replica sends nothing.", "Bytes divided by bandwidth are seconds."),
        """
def my_step(compute, nbytes, bandwidth, overhead, replicas):
    if replicas == 1:
        return compute
    return compute / replicas + nbytes / bandwidth + overhead
""",
        "Replicas gain only if the computation that they save is more than what they add.",
        slips=[
            ("+ overhead", "", "Add the overhead."),
            ("compute / replicas", "compute", "Divide the computation."),
            ("replicas == 1", "False", "One replica sends nothing."),
        ],
        difficulty=2,
    ),
}
