"""The exercises of lecture 00, start here."""

from labkit.exercises.judges import number, word
from labkit.exercises.task import Task

TASKS = {
    "00.efficiency_words": Task(
        "Two replicas have 1.5 times the throughput of one. The efficiency is the speed-up divided "
        "by the number of replicas. How large is it here, in per cent?",
        number(100 * 1.5 / 2, "%", within=0.001),
        "The speed-up is 1.5, and the number of replicas is 2.",
        "At an efficiency of 100 % two replicas would have twice the throughput of one.",
    ),
    "00.kind": Task(
        "A paper's formula says that an all-reduce of 1 GB takes 20 ms on your network. You have "
        'not timed it. Is that number "measured", "recorded" or "modelled"?',
        word("modelled"),
        "Was it timed, here or elsewhere?",
        "A formula gave it. A time that you take is measured; kept with place and date, recorded.",
    ),
}
