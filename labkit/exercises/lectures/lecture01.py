"""The exercises of lecture 01, why distribute."""

from labkit.exercises.judges import number, word
from labkit.exercises.task import Task

TASKS = {
    "01.bytes_per_step": Task(
        "A model has 1,199,882 parameters in float32. How many bytes of gradients does each "
        "replica bring to the all-reduce in one step?",
        number(4 * 1_199_882, "bytes"),
        "Each parameter has one gradient, of the same type. How many bytes does a float32 need?",
        "One gradient per parameter, four bytes each. The batch size does not matter.",
    ),
    "01.adam_memory": Task(
        "A model has 3 billion parameters. How many GB do weights, gradients and Adam's two "
        "moments take, all in float32?",
        number(3 * 4 * 4, "GB", within=0.01),
        "How many float32 numbers does each parameter need in total?",
        "Weight, gradient and two moments: 4 × 4 bytes for each parameter, before any activation.",
    ),
    "01.steps_per_epoch": Task(
        "64,000 images, 2 replicas, 32 images per replica. How many steps has one epoch?",
        number(64_000 / (2 * 32), "steps"),
        "Divide by the global batch: the images of both replicas in one step.",
        "The global batch is 64, and 64,000 images are a thousand of them.",
    ),
    "01.link_seconds": Task(
        "The gradients of 350 million float32 parameters cross a link of 0.125 GB/s once. "
        "How many seconds does that take?",
        number(4 * 350e6 / 0.125e9, "s", within=0.02),
        "First the bytes of the gradients, then divide by the bytes per second.",
        "1.4 GB over 0.125 GB/s. If the computation is shorter, communication dominates the step.",
    ),
    "01.uneven_halves": Task(
        "Replica 0 has 30 examples and a mean gradient of 1. Replica 1 has 10 examples and a mean "
        "gradient of 5. What is the mean gradient of all 40 examples?",
        number((30 * 1 + 10 * 5) / 40, within=0.01),
        "The plain average of 1 and 5 treats 10 examples as if they were 30. Weight them.",
        "Each mean is weighted by its number of examples: (30 × 1 + 10 × 5) / 40.",
    ),
    "01.which_strategy": Task(
        "25 million parameters, 1.28 million photos that may be copied, one machine with four "
        "equal GPUs of 24 GB. Which class of tf.distribute do you begin with?",
        word("MirroredStrategy"),
        "Follow the decision tree: does a step fit on one device? How many machines are there?",
        "The step fits, the devices are equal, and all are in one machine.",
    ),
}
