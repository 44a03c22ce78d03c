"""The tasks of lecture 04: scaling."""

from labkit.exercises.judges.answers import function_task, number
from labkit.exercises.judges.slow_link import accumulated
from labkit.exercises.judges.training_loops import distributed_accuracy, fitting
from labkit.exercises.task import Task

TASKS = {
    "04.batch_per_replica": Task(
        "Strong scaling: a global batch of 256, 8 replicas. How many images does each get a step?",
        number(32, "images"),
        ("The strategy cuts the global batch into equal slices.",),
        "answer = 256 / 8",
        "256 images shared by 8 replicas.",
        slips={2048: "The global batch stays 256."},
    ),
    "04.steps_weak": Task(
        "Weak scaling: 4 replicas with 50 images each. How many steps has an epoch of 60,000?",
        number(300, "steps"),
        ("First the global batch: all replicas together.", "An epoch is all images / that batch."),
        """
global_batch = 4 * 50
answer = 60_000 / global_batch
""",
        "A global batch of 200, so a quarter of the steps that one device would need.",
        slips={1200: "The global batch is 4 × 50."},
    ),
    "04.gradient_bytes": Task(
        "The dense model has 101,770 float32 parameters. One replica contributes its gradients to "
        "the all-reduce of every step. An epoch has 600 steps. How many MB does it contribute?",
        number(244.248, "MB", within=0.01),
        ("One float32 is 4 bytes; first the bytes of one step.", "Then those of all 600 steps."),
        """
one_step = 101_770 * 4  # bytes
answer = 600 * one_step / 1e6
""",
        "407,080 bytes a step. The batch does not matter, only the number of steps.",
        slips={0.40708: "That is one step.", 61.062: "Each has 4 bytes."},
    ),
    "04.efficiency": Task(
        "Four replicas train 2.8 times as many images a second as one. Efficiency, in per cent?",
        number(70, "%", within=0.001),
        ("Speed-up divided by the number of devices.",),
        "answer = 100 * 2.8 / 4",
        "Three tenths of what was paid for went into communication and overhead.",
        slips={280: "That is the speed-up."},
    ),
    "04.my_efficiency": function_task(
        "Write my_efficiency(one, several, devices, weak): the efficiency as a share of 1. one and "
        "several are the seconds of an epoch on one device and on that many devices. With "
        "weak=True the epoch on several devices has devices times as many images.",
        [
            (10.0, 5.0, 2, False),
            (10.0, 4.0, 4, False),
            (10.0, 10.0, 8, True),
            (10.0, 12.5, 2, True),
        ],
        (
            "The speed-up is the ratio of the throughputs.",
            "With weak scaling the throughput on several devices is devices × images / several.",
        ),
        """
def my_efficiency(one, several, devices, weak):
    images = devices if weak else 1  # of the epoch on several devices
    speed_up = (images / several) / (1 / one)
    return speed_up / devices
""",
        "Strong scaling: the time should fall. Weak scaling: the time should stay the same.",
        slips=[
            (" / devices", "", "That is the speed-up."),
            ("devices if weak else 1", "1", "A weak epoch has more images."),
        ],
        difficulty=2,
    ),
    "04.my_rate": function_task(
        "Write my_rate(step, batch, warm_up_steps) by the linear scaling rule. A batch of 256 has "
        "the rate 0.1. In the warm-up the rate grows in equal parts: step 0 has the first part, "
        "and step warm_up_steps - 1 and all later steps have the whole rate.",
        [(2, 4096, 5), (0, 256, 5), (4, 256, 5), (99, 8192, 10), (2, 1024, 4)],
        (
            "First the whole rate: k times the batch, k times the rate.",
            "min(1, …) ends the warm-up.",
        ),
        """
def my_rate(step, batch, warm_up_steps):
    whole = 0.1 * batch / 256
    return whole * min(1, (step + 1) / warm_up_steps)
""",
        "A batch of 8192 has a rate of 3.2, as in the paper of Goyal et al.",
        slips=[
            ("(step + 1)", "step", "Step 0 has the first part."),
            (
                "min(1, (step + 1) / warm_up_steps)",
                "(step + 1) / warm_up_steps",
                "The warm-up has an end.",
            ),
            ("batch / 256", "1", "k times the batch, k times the rate."),
        ],
        difficulty=2,
    ),
    "04.my_fit": Task(
        "Write my_fit(strategy, make_model, dataset, global_batch): train one epoch with model.fit "
        "under the strategy, with keras.optimizers.SGD(0.1) and the mean cross-entropy of logits. "
        "The dataset has single examples; do not shuffle. Return the model.",
        fitting,
        (
            "Make and compile the model inside strategy.scope().",
            "fit distributes the batches that it gets: they are global ones.",
        ),
        """
def my_fit(strategy, make_model, dataset, global_batch):
    with strategy.scope():
        model = make_model()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.1), loss)
    model.fit(dataset.batch(global_batch), shuffle=False, verbose=0)
    return model
""",
        "The weights are those of the serial program: fit divides the loss by the global batch.",
        difficulty=2,
    ),
    "04.my_evaluate": Task(
        "Write my_evaluate(strategy, model, dataset, global_batch): the accuracy over the whole "
        "dataset, a share of 1, computed by all replicas. The dataset has single examples, and "
        "the last batch is smaller than the others.",
        distributed_accuracy,
        (
            "Distribute dataset.batch(global_batch) with strategy.experimental_distribute_dataset.",
            "Each replica counts its right answers: strategy.run(count, args=(images, labels)).",
            "strategy.reduce(tf.distribute.ReduceOp.SUM, counts, axis=None) adds up the counts.",
        ),
        """
def my_evaluate(strategy, model, dataset, global_batch):
    def count(images, labels):
        answers = tf.argmax(model(images, training=False), axis=1, output_type=tf.int32)
        right = tf.reduce_sum(tf.cast(answers == labels, tf.int32))
        return tf.stack([right, tf.size(labels)])

    @tf.function
    def evaluation_step(images, labels):
        counts = strategy.run(count, args=(images, labels))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, counts, axis=None)

    batches = strategy.experimental_distribute_dataset(dataset.batch(global_batch))
    right, images = sum(evaluation_step(*batch).numpy() for batch in batches)
    return right / images
""",
        "Counts may be added up over replicas and batches; accuracies may not.",
        difficulty=3,
    ),
    "04.over_a_slow_link": Task(
        "Write my_steps(weights, steps, gradient, all_reduce, global_batch): train on one of two "
        "workers, and return the weights. steps is a list with the micro-batches of each step, "
        "pairs (images, labels); the memory has room for one of them. gradient(weights, images, "
        "labels) returns the sum of its images' gradients; all_reduce(array) returns the sum of "
        "both workers' arrays. Each step makes one update, weights - 0.1 × the mean gradient of "
        "all global_batch images of both workers. The link is slow: send as little as possible.",
        accumulated,
        (
            "First the loop over the micro-batches of a step: add up what gradient returns.",
            "Call all_reduce after that loop, once a step.",
            "gradient gives sums: divide what all_reduce returns by global_batch.",
        ),
        """
def my_steps(weights, steps, gradient, all_reduce, global_batch):
    for micro_batches in steps:
        total = 0
        for images, labels in micro_batches:
            total = total + gradient(weights, images, labels)
        weights = weights - 0.1 * all_reduce(total) / global_batch
    return weights
""",
        "A sum of sums is the same sum, and it crosses the link once.",
        difficulty=2,
    ),
}
