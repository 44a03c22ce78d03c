"""The exercises of lecture 03, MirroredStrategy."""

from labkit.exercises.judges import number
from labkit.exercises.task import Task
from labkit.exercises.training_loop import training_loop

TASKS = {
    "03.batch_per_replica": Task(
        "Strong scaling: a global batch of 256, 8 replicas. How many images does each get a step?",
        number(256 / 8, "images"),
        "The strategy cuts the global batch into equal slices.",
        "256 images shared by 8 replicas.",
    ),
    "03.steps_weak": Task(
        "Weak scaling: 4 replicas with 50 images each. How many steps has an epoch of 60,000?",
        number(60_000 / (4 * 50), "steps"),
        "First the global batch: all replicas together.",
        "A global batch of 200, so a quarter of the steps that one device would need.",
    ),
    "03.fill": Task(
        "Fill in the blanks of my_train: the batch, the model, the loss and the reduced loss.",
        training_loop(),
        "The batch is the global one; the model needs the scope; the loss is divided by the "
        "global batch, so the losses of the replicas are summed.",
        "Every image reached one replica, and the weights are those of the serial program.",
    ),
    "03.loop": Task(
        "Write my_train(strategy, make_model, dataset, global_batch): one pass with plain SGD, "
        "learning rate 0.1. Return the model and the list of the loss of each step.",
        training_loop(),
        "strategy.scope() for the model and the optimizer, strategy.run for the step, "
        "strategy.reduce for its loss.",
        "Every image reached one replica, and the weights are those of the serial program.",
    ),
    "03.gradient_bytes": Task(
        "The dense model has 101,770 float32 parameters. One replica brings its gradients to the "
        "all-reduce of every step. An epoch has 600 steps. How many MB does the replica bring?",
        number(600 * 4 * 101_770 / 1e6, "MB", within=0.01),
        "One float32 is 4 bytes; first the bytes of one step, then of all steps.",
        "407,080 bytes a step. The batch does not matter, only the number of steps.",
    ),
    "03.efficiency": Task(
        "Four replicas train 2.8 times as many images a second as one. Efficiency, in per cent?",
        number(100 * 2.8 / 4, "%", within=0.001),
        "Speed-up divided by the number of devices.",
        "Three tenths of what was paid for went into communication and other overhead.",
    ),
}
