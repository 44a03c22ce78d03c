"""The tasks of lecture 01: why distribute."""

from labkit.exercises.judges.answers import function_task, number, word
from labkit.exercises.task import Task

TASKS = {
    "01.bytes_per_step": Task(
        "A model has 1,199,882 parameters in float32. How many bytes of gradients does each "
        "replica contribute to the all-reduce in one step?",
        number(4_799_528, "bytes"),
        ("Each parameter has one gradient, of the same type.", "A float32 has 32 bits: 4 bytes."),
        "answer = 1_199_882 * 4  # gradients × bytes of a float32",
        "One gradient per parameter, four bytes each. The batch size does not matter.",
        slips={1_199_882: "Each gradient has four bytes.", 9_599_056: "A float32 has four bytes."},
    ),
    "01.adam_memory": Task(
        "A model has 3 billion parameters. How many GB do weights, gradients and Adam's two "
        "moments take, all in float32?",
        number(48, "GB", within=0.01),
        (
            "How many float32 numbers does each parameter need in total?",
            "Four: the weight, its gradient, and the two moments.",
        ),
        """
numbers = 1 + 1 + 2  # for each parameter: weight, gradient, two moments
answer = 3e9 * numbers * 4 / 1e9  # 4 bytes each; a GB is 1e9 bytes
""",
        "Weight, gradient and two moments: 4 × 4 bytes for each parameter, before any activation.",
        slips={36: "Adam has two moments.", 12: "Those are the weights."},
    ),
    "01.steps_per_epoch": Task(
        "64,000 images, 2 replicas, 32 images per replica. How many steps has one epoch?",
        number(1000, "steps"),
        ("How many images do both replicas use in one step?", "Divide the images by that."),
        """
global_batch = 2 * 32
answer = 64_000 / global_batch
""",
        "The global batch is 64, and 64,000 images are a thousand of them.",
        slips={2000: "Both replicas take 32 images in a step."},
    ),
    "01.link_seconds": Task(
        "The gradients of 350 million float32 parameters cross a link of 0.125 GB/s once. "
        "How many seconds does that take?",
        number(11.2, "s", within=0.02),
        (
            "First the bytes of the gradients: 4 for each parameter.",
            "Then divide by the bytes per second: 0.125e9.",
        ),
        """
size = 350e6 * 4  # bytes: 1.4 GB
answer = size / 0.125e9
""",
        "1.4 GB over 0.125 GB/s. If the computation is shorter, communication dominates the step.",
        slips={89.6: "GB/s are bytes.", 2.8: "A float32 has 4 bytes.", 1.4: "Those are the GB."},
    ),
    "01.uneven_halves": Task(
        "Replica 0 has 30 examples and a mean gradient of 1. Replica 1 has 10 examples and a mean "
        "gradient of 5. What is the mean gradient of all 40 examples?",
        number(2, within=0.01),
        (
            "The plain average of 1 and 5 treats 10 examples as if they were 30.",
            "Add the gradients of all 40 examples: 30 of them have 1 on average, and 10 have 5.",
        ),
        """
all_gradients = 30 * 1 + 10 * 5
answer = all_gradients / 40
""",
        "Each mean is weighted by its number of examples: (30 × 1 + 10 × 5) / 40.",
        difficulty=2,
        slips={3: "That is the plain average.", 80: "Divide by 40."},
    ),
    "01.which_strategy": Task(
        "25 million parameters, 1.28 million photos that may be copied, one machine with four "
        "equal GPUs of 24 GB. Which class of tf.distribute do you begin with?",
        word("MirroredStrategy"),
        (
            "Follow the decision tree: does a step fit on one device? How many machines are there?",
            "Data parallelism within one machine: every GPU holds a mirror of the weights.",
        ),
        """
state = 25e6 * 4 * 4 / 1e9  # 0.4 GB with Adam: a step fits on a GPU of 24 GB
answer = "MirroredStrategy"  # so data parallelism; one machine with equal devices
""",
        "The step fits, the devices are equal, and all are in one machine.",
        slips={
            "MultiWorkerMirroredStrategy": "That is for several machines.",
            "ParameterServerStrategy": "The devices are equal, and in one machine.",
        },
    ),
    "01.my_memory": function_task(
        "Write my_memory(parameters, batch, activation_bytes): the bytes of one training step in "
        "float32 with Adam: weights, gradients, two moments, and activation_bytes of each example.",
        [(101_770, 64, 1_064), (1_000_000, 1, 0), (0, 32, 5)],
        ("Four numbers for each parameter.", "A float32 has four bytes."),
        """
def my_memory(parameters, batch, activation_bytes):
    numbers = 4  # weight, gradient, and Adam's two moments
    return 4 * numbers * parameters + batch * activation_bytes
""",
        "The first part grows with the model, the second with the batch.",
        slips=[
            ("numbers = 4", "numbers = 1", "Add the gradients and both moments."),
            ("numbers = 4", "numbers = 3", "Adam has two moments."),
            (
                "batch * activation_bytes",
                "activation_bytes",
                "activation_bytes are of one example.",
            ),
        ],
    ),
    "01.my_gradient": function_task(
        "Write my_gradient(gradients, examples): the mean gradient of the global batch, from the "
        "mean gradient and the number of examples of each replica.",
        [([1, 5], [30, 10]), ([2, 4, 6], [8, 8, 8]), ([-1.5], [3])],
        (
            "A replica with more examples has more weight.",
            "gradient × examples is the sum over the examples of a replica.",
        ),
        """
def my_gradient(gradients, examples):
    sums = [gradient * count for gradient, count in zip(gradients, examples)]
    return sum(sums) / sum(examples)
""",
        "With equal parts it is the plain average.",
        slips=[
            (
                "sum(sums) / sum(examples)",
                "sum(gradients) / len(gradients)",
                "That is the plain average.",
            ),
            (" / sum(examples)", "", "Divide by all examples."),
        ],
    ),
}
