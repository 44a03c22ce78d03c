"""The tasks of the basics: lectures 00 to 07."""

from collections.abc import Sequence
from statistics import median

from labkit.exercises.judges.answers import number, same_as, word
from labkit.exercises.judges.model_functions import (
    accuracy,
    distributed_accuracy,
    fitting,
    input_pipeline,
    one_step,
)
from labkit.exercises.judges.training_loops import accumulation, clipping, resuming, training_loop
from labkit.exercises.task import Task

TRAINING_LOOP = """
def my_train(strategy, make_model, dataset, global_batch):
    batches = strategy.experimental_distribute_dataset(dataset.batch(global_batch))
    with strategy.scope():
        model, optimizer = make_model(), keras.optimizers.SGD(0.1)

    def step(images, labels):
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels, model(images, training=True))
            loss = tf.nn.compute_average_loss(losses, global_batch_size=global_batch)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    @tf.function
    def train_step(images, labels):
        losses = strategy.run(step, args=(images, labels))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    return model, [train_step(images, labels) for images, labels in batches]
"""


def _utilisation(kernels: Sequence[tuple[float, float]], seconds: float) -> float:
    busy = end = 0.0
    for start, stop in sorted(kernels):
        busy += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return 100 * busy / seconds


def _energy(times: Sequence[float], watts: Sequence[float]) -> float:
    spans = zip(times, times[1:], watts, watts[1:], strict=False)
    return sum((after - before) * (one + two) / 2 for before, after, one, two in spans)


LECTURE_00 = {
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
    ),
    "00.kind": Task(
        "A paper's formula says that an all-reduce of 1 GB takes 20 ms on your network. You have "
        'not timed it. Is that number "measured", "recorded" or "modelled"?',
        word("modelled"),
        ("Was it timed, here or elsewhere?", "It is the result of a formula."),
        'answer = "modelled"  # a formula gave it; it was not timed',
        "A formula gave it. A time that you take is measured; kept with place and date, recorded.",
    ),
    "00.my_median": Task(
        "Write my_median(times): the median of a list of times. Of an even number of times it is "
        "the mean of the two in the middle.",
        same_as(median, ([3, 1, 2],), ([5.0],), ([4, 1, 3, 2],), ([9, 1, 1, 1, 2, 30],)),
        ("Sort the times first.", "Of n sorted times, number n // 2 is in the middle."),
        """
def my_median(times):
    ordered, half = sorted(times), len(times) // 2
    if len(times) % 2:
        return ordered[half]
    return (ordered[half - 1] + ordered[half]) / 2
""",
        "One very long time changes the mean, and hardly changes the median.",
    ),
    "00.my_speed_up": Task(
        "Write my_speed_up(baseline, program): two lists of times. Return the median of the "
        "baseline divided by the median of the program.",
        same_as(
            lambda baseline, program: median(baseline) / median(program),
            ([2, 2, 2], [1, 1, 1]),
            ([3, 1, 2], [4, 4, 4]),
            ([1.0, 5.0], [1.0, 2.0, 9.0]),
        ),
        ("A program that takes half of the time has a speed-up of 2.", "statistics.median helps."),
        """
from statistics import median

def my_speed_up(baseline, program):
    return median(baseline) / median(program)
""",
        "Above 1 the program is faster than the baseline, below 1 it is slower.",
    ),
}

LECTURE_01 = {
    "01.bytes_per_step": Task(
        "A model has 1,199,882 parameters in float32. How many bytes of gradients does each "
        "replica contribute to the all-reduce in one step?",
        number(4_799_528, "bytes"),
        ("Each parameter has one gradient, of the same type.", "A float32 has 32 bits: 4 bytes."),
        "answer = 1_199_882 * 4  # gradients × bytes of a float32",
        "One gradient per parameter, four bytes each. The batch size does not matter.",
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
    ),
    "01.my_memory": Task(
        "Write my_memory(parameters, batch, activation_bytes): the bytes of one training step in "
        "float32 with Adam: weights, gradients, two moments, and activation_bytes of each example.",
        same_as(
            lambda parameters, batch, activations: 16 * parameters + batch * activations,
            (101_770, 64, 1_064),
            (1_000_000, 1, 0),
            (0, 32, 5),
        ),
        ("Four numbers for each parameter.", "A float32 has four bytes."),
        """
def my_memory(parameters, batch, activation_bytes):
    numbers = 4  # weight, gradient, and Adam's two moments
    return 4 * numbers * parameters + batch * activation_bytes
""",
        "The first part grows with the model, the second with the batch.",
    ),
    "01.my_gradient": Task(
        "Write my_gradient(gradients, examples): the mean gradient of the global batch, from the "
        "mean gradient and the number of examples of each replica.",
        same_as(
            lambda gradients, examples: (
                sum(g * n for g, n in zip(gradients, examples, strict=True)) / sum(examples)
            ),
            ([1, 5], [30, 10]),
            ([2, 4, 6], [8, 8, 8]),
            ([-1.5], [3]),
        ),
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
    ),
}

LECTURE_02 = {
    "02.steps_per_epoch": Task(
        "60,000 images in batches of 48. How many steps has one epoch?",
        number(1250, "steps"),
        ("Divide the images by the batch.",),
        "answer = 60_000 / 48",
        "1,250 steps, and 1,250 updates of the weights.",
    ),
    "02.fixed_cost": Task(
        "A step takes 0.40 ms with 32 images and 0.64 ms with 64. Assume that each step has the "
        "same overhead, and each image takes the same time. How many ms is the overhead?",
        number(0.16, "ms", within=0.01),
        (
            "The difference between the two times is the time of 32 images.",
            "What is left of the first step without its 32 images?",
        ),
        """
of_32_images = 0.64 - 0.40
answer = 0.40 - of_32_images
""",
        "0.24 ms for 32 images, and 0.16 ms of overhead in every step.",
        difficulty=2,
    ),
    "02.my_step_seconds": Task(
        "A step has overhead, the same for every batch, and each image takes the same time. Write "
        "my_step_seconds(small, large, batch): small and large are measured pairs "
        "(batch, seconds). Return the seconds of a step with this batch.",
        same_as(
            lambda small, large, batch: (
                small[1] + (batch - small[0]) * (large[1] - small[1]) / (large[0] - small[0])
            ),
            ((32, 0.40), (64, 0.64), 128),
            ((32, 0.40), (64, 0.64), 0),
            ((10, 1.0), (20, 1.0), 500),
        ),
        (
            "The difference of the two times belongs to the additional images.",
            "A batch of 0 images takes the overhead.",
        ),
        """
def my_step_seconds(small, large, batch):
    for_an_image = (large[1] - small[1]) / (large[0] - small[0])
    overhead = small[1] - small[0] * for_an_image
    return overhead + batch * for_an_image
""",
        "A straight line: its height at 0 is the overhead, its slope the time of an image.",
        difficulty=2,
    ),
    "02.my_step": Task(
        "Write my_step(model, optimizer, images, labels): one training step on a batch, with the "
        "mean cross-entropy of the model's logits. Return the loss.",
        one_step(),
        (
            "tf.GradientTape records the forward pass: model(images, training=True).",
            "keras.losses.SparseCategoricalCrossentropy(from_logits=True) is a mean over a batch.",
            "optimizer.apply_gradients(zip(gradients, model.trainable_variables)) updates.",
        ),
        """
mean_loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

def my_step(model, optimizer, images, labels):
    with tf.GradientTape() as tape:
        loss = mean_loss(labels, model(images, training=True))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss
""",
        "After two of your steps the weights are those of the serial program in numpy.",
        difficulty=2,
    ),
    "02.my_accuracy": Task(
        "Write my_accuracy(model, images, labels, batch): the share of all images whose largest "
        "logit is that of their label. The model may get at most `batch` images in one call.",
        accuracy(),
        (
            "images[first:first + batch], for first in range(0, len(images), batch).",
            "tf.argmax(model(part, training=False), axis=1) are the model's answers.",
            "Count the right answers of all batches, and divide once, at the end.",
        ),
        """
def my_accuracy(model, images, labels, batch):
    right = 0
    for first in range(0, len(images), batch):
        logits = model(images[first:first + batch], training=False)
        answers = tf.argmax(logits, axis=1).numpy()
        right += (answers == labels[first:first + batch]).sum()
    return right / len(images)
""",
        "The last batch was smaller, so the mean of the batches' accuracies is another number.",
        difficulty=2,
    ),
}

LECTURE_03 = {
    "03.fill": Task(
        "Fill in the blanks of my_train: the batch, the model, the loss and the reduced loss.",
        training_loop(),
        (
            "experimental_distribute_dataset expects global batches. make_model() needs the scope.",
            "Divide the loss by the global batch: tf.nn.compute_average_loss with "
            "global_batch_size.",
            "strategy.run(step, args=(images, labels)) returns a loss for each replica; "
            "strategy.reduce sums them.",
        ),
        TRAINING_LOOP,
        "Every image reached one replica, and the weights are those of the serial program.",
        difficulty=2,
    ),
    "03.loop": Task(
        "Write my_train(strategy, make_model, dataset, global_batch): one pass with plain SGD, "
        "learning rate 0.1. Return the model and the list of the loss of each step.",
        training_loop(),
        (
            "Model and optimizer belong inside strategy.scope(). Distribute "
            "dataset.batch(global_batch) with strategy.experimental_distribute_dataset.",
            "A function computes the gradients of one replica's images and applies them; "
            "strategy.run calls it on every replica, inside a tf.function.",
            "Divide the loss by global_batch, so that the sum over the replicas "
            "(strategy.reduce) is the mean over the global batch.",
        ),
        TRAINING_LOOP,
        "Every image reached one replica, and the weights are those of the serial program.",
        difficulty=3,
    ),
}

LECTURE_04 = {
    "04.batch_per_replica": Task(
        "Strong scaling: a global batch of 256, 8 replicas. How many images does each get a step?",
        number(32, "images"),
        ("The strategy cuts the global batch into equal slices.",),
        "answer = 256 / 8",
        "256 images shared by 8 replicas.",
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
    ),
    "04.efficiency": Task(
        "Four replicas train 2.8 times as many images a second as one. Efficiency, in per cent?",
        number(70, "%", within=0.001),
        ("Speed-up divided by the number of devices.",),
        "answer = 100 * 2.8 / 4",
        "Three tenths of what was paid for went into communication and other overhead.",
    ),
    "04.my_efficiency": Task(
        "Write my_efficiency(one, several, devices, weak): the efficiency as a share of 1. one and "
        "several are the seconds of an epoch on one device and on that many devices. With "
        "weak=True the epoch on several devices has devices times as many images.",
        same_as(
            lambda one, several, devices, weak: one / several / (1 if weak else devices),
            (10.0, 5.0, 2, False),
            (10.0, 4.0, 4, False),
            (10.0, 10.0, 8, True),
            (10.0, 12.5, 2, True),
        ),
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
        difficulty=2,
    ),
    "04.my_rate": Task(
        "Write my_rate(step, batch, warm_up_steps) by the linear scaling rule. A batch of 256 has "
        "the rate 0.1. In the warm-up the rate grows in equal parts: step 0 has the first part, "
        "and step warm_up_steps - 1 and all later steps have the whole rate.",
        same_as(
            lambda step, batch, warm_up: 0.1 * batch / 256 * min(1.0, (step + 1) / warm_up),
            (0, 256, 5),
            (4, 256, 5),
            (99, 8192, 10),
            (2, 1024, 4),
        ),
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
        difficulty=2,
    ),
    "04.my_fit": Task(
        "Write my_fit(strategy, make_model, dataset, global_batch): train one epoch with model.fit "
        "under the strategy, with keras.optimizers.SGD(0.1) and the mean cross-entropy of logits. "
        "The dataset has single examples; do not shuffle. Return the model.",
        fitting(),
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
        distributed_accuracy(),
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
}

LECTURE_05 = {
    "05.defects": Task(
        "How many different defects does labkit find in the classic benchmark?",
        number(7, "defects"),
        ("A defect that occurs twice counts once. diagnose counts in the same way.",),
        "answer = 7  # len(diagnose(program).names)",
        "labkit knows the classic defects only; your own program may have others.",
    ),
    "05.accuracy": Task(
        "Which one defect made the accuracy on two replicas so low? Give its name.",
        word("loss"),
        (
            "The variants of section 5 have the names of the defects that they fix.",
            "Which defect makes the gradient of every image wrong? Others change order or seconds.",
        ),
        'answer = "loss"  # the other defects change which images are used when, or the seconds',
        "Without a meaningful loss the model learns almost nothing.",
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
    ),
    "05.my_dataset": Task(
        "Write my_dataset(images, labels, batch) with tf.data: every image once an epoch with its "
        "label, in batches, in an order that is new in each epoch and mixes the whole data. Keep "
        "the last, smaller batch.",
        input_pipeline(),
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
    ),
    "05.my_cpu_seconds": Task(
        "Write my_cpu_seconds(threads): what time.process_time() counts. threads has for each "
        "thread a pair: the seconds in which it computes, and the seconds in which it waits.",
        same_as(
            lambda threads: sum(computes for computes, _ in threads),
            ([(3, 4), (3, 4)],),
            ([(1.5, 0)],),
            ([(0, 9), (2, 1), (2, 1)],),
        ),
        ("A thread that waits uses no core.", "The threads are added up."),
        """
def my_cpu_seconds(threads):
    return sum(computes for computes, waits in threads)
""",
        "Wall-clock time is another number: the threads compute side by side, and waiting counts.",
    ),
    "05.my_step": Task(
        "Write my_step(compute, nbytes, bandwidth, overhead, replicas): the seconds of a step. The "
        "replicas divide the computation; two or more also send nbytes over the link and have the "
        "overhead.",
        same_as(
            lambda compute, nbytes, bandwidth, overhead, replicas: (
                compute / replicas + (replicas > 1) * (nbytes / bandwidth + overhead)
            ),
            (0.0003, 407_080, 10e9, 0.0005, 1),
            (0.0003, 407_080, 10e9, 0.0005, 2),
            (0.5, 5e6, 1e9, 0.001, 8),
        ),
        ("One replica sends nothing.", "Bytes divided by bandwidth are seconds."),
        """
def my_step(compute, nbytes, bandwidth, overhead, replicas):
    if replicas == 1:
        return compute
    return compute / replicas + nbytes / bandwidth + overhead
""",
        "Replicas gain only if the computation that they save is more than what they add.",
        difficulty=2,
    ),
}

LECTURE_06 = {
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
    ),
    "06.one_of_four": Task(
        "A processor has four cores. One computes during the whole span, the others are idle. "
        "What is the utilisation of the processor, in per cent?",
        number(25, "%"),
        ("The processor's utilisation is the mean of its cores.",),
        "answer = (100 + 0 + 0 + 0) / 4",
        "One busy core of N adds 100/N per cent to the mean.",
    ),
    "06.kilowatt_hours": Task(
        "A machine with eight GPUs drew 1,515 W, on average, for 84 hours. How many kWh is that?",
        number(127.26, "kWh", within=0.01),
        ("Power times time: watts times hours are watt-hours.", "1,000 Wh are 1 kWh."),
        "answer = 1515 * 84 / 1000",
        "127 kWh for one training of the large Transformer: recorded hours, estimated watts.",
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
    ),
    "06.which_metric": Task(
        "A GPU shows 100 % utilisation and trains slowly. Which metric can show that most of "
        'the GPU is unused: "temperature", "SM activity" or "memory used"?',
        word("SM activity"),
        (
            "Utilisation is the share of time in which at least one kernel ran, however small.",
            "Which of the three says how many multiprocessors had work?",
        ),
        'answer = "SM activity"  # the share of the multiprocessors that had work',
        "Utilisation counts the time with at least one kernel; SM activity is the share of the "
        "multiprocessors that had work. Where it is missing, power far below the limit is a sign.",
        difficulty=2,
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
    ),
    "06.my_utilisation": Task(
        "Write my_utilisation(kernels, seconds): the utilisation of a GPU in per cent. kernels is "
        "a list of pairs (start, end); kernels may run at the same time.",
        same_as(
            _utilisation,
            ([(0, 1), (2, 3)], 4),
            ([(0, 2), (1, 3)], 4),
            ([(0, 4), (1, 2), (1, 3)], 4),
            ([(5, 6), (0, 1)], 10),
            ([], 2),
        ),
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
        difficulty=2,
    ),
    "06.my_energy": Task(
        "Write my_energy(times, watts): the energy in joules from samples of the power. Between "
        "two samples take the mean of both.",
        same_as(
            _energy,
            ([0, 1, 2], [100, 100, 100]),
            ([0, 0.5, 2.0], [50, 150, 250]),
            ([3, 4], [0, 300]),
        ),
        ("Energy is power × time.", "Each pair of neighbouring samples gives one part."),
        """
def my_energy(times, watts):
    energy = 0
    for k in range(1, len(times)):
        energy += (times[k] - times[k - 1]) * (watts[k] + watts[k - 1]) / 2
    return energy
""",
        "It is the area under the power. A counter of energy needs no such sum.",
    ),
}

LECTURE_07 = {
    "07.warm_up": Task(
        "WarmUp(peak=0.4, warm_up_steps=10, steps=100): what is the rate of the step with number 4 "
        "(the first step has number 0)?",
        number(0.2),
        (
            "During the warm-up the rate is peak · (step + 1) / warm_up_steps.",
            "Step number 4 is the fifth step.",
        ),
        """
peak, warm_up_steps, step = 0.4, 10, 4
answer = peak * (step + 1) / warm_up_steps
""",
        "Step number 4 is the fifth of ten steps, so half of the peak.",
    ),
    "07.micro_batches": Task(
        "A global batch of 256, 2 replicas, and each device has memory for 32 images. How many "
        "micro-batches does each replica need in a step?",
        number(4, "micro-batches"),
        ("First the images of one replica in one step.", "How often do 32 images fit into them?"),
        """
one_replica = 256 / 2
answer = one_replica / 32
""",
        "128 images for each replica, 32 at a time. The update happens once, after the fourth.",
    ),
    "07.accumulate": Task(
        "Write my_train(make_model, dataset, batch, micro_batches): one pass with plain SGD, "
        "learning rate 0.1, one update for each batch, and never more than batch / micro_batches "
        "images on the device. Return the model.",
        accumulation(),
        (
            "For each batch: compute the gradients of every micro-batch, add them up, and apply "
            "the sum once.",
            "images[part::micro_batches] is a micro-batch, for part in range(micro_batches).",
            "Divide the summed loss of a micro-batch by the size of the whole batch; then the sum "
            "of the gradients is that of the batch.",
        ),
        """
def my_train(make_model, dataset, batch, micro_batches):
    model, optimizer = make_model(), keras.optimizers.SGD(0.1)
    variables = model.trainable_variables
    for images, labels in dataset.batch(batch):
        total = [tf.zeros_like(variable) for variable in variables]
        for part in range(micro_batches):
            with tf.GradientTape() as tape:
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                    labels[part::micro_batches],
                    model(images[part::micro_batches], training=True))
                loss = tf.reduce_sum(losses) / batch
            gradients = tape.gradient(loss, variables)
            total = [a + b for a, b in zip(total, gradients)]
        optimizer.apply(total, variables)
    return model
""",
        "The weights are those of the serial program with the whole batch.",
        difficulty=3,
    ),
    "07.clip": Task(
        "Write my_train(strategy, make_model, dataset, global_batch, clip_norm): one pass with "
        "plain SGD, learning rate 0.1, the gradient of the mean loss clipped by its global norm. "
        "Return the model.",
        clipping(),
        (
            "The norm must be that of the summed gradients: sum over the replicas first, then "
            "clip.",
            "Inside strategy.run, tf.distribute.get_replica_context().all_reduce("
            '"sum", gradients) sums them; tf.clip_by_global_norm clips.',
            "optimizer.apply sums over the replicas once more: divide the clipped gradients by "
            "strategy.num_replicas_in_sync.",
        ),
        """
def my_train(strategy, make_model, dataset, global_batch, clip_norm):
    with strategy.scope():
        model, optimizer = make_model(), keras.optimizers.SGD(0.1)

    def step(images, labels):
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels, model(images, training=True))
            loss = tf.nn.compute_average_loss(losses, global_batch_size=global_batch)
        gradients = tape.gradient(loss, model.trainable_variables)
        gradients = tf.distribute.get_replica_context().all_reduce("sum", gradients)
        gradients, _ = tf.clip_by_global_norm(gradients, clip_norm)
        replicas = strategy.num_replicas_in_sync
        optimizer.apply([one / replicas for one in gradients], model.trainable_variables)

    @tf.function
    def train_step(images, labels):
        strategy.run(step, args=(images, labels))

    batches = strategy.experimental_distribute_dataset(dataset.batch(global_batch))
    for images, labels in batches:
        train_step(images, labels)
    return model
""",
        "The norm is that of the sum over all replicas, so the weights are those of one device.",
        difficulty=3,
    ),
    "07.underflow": Task(
        "The smallest positive float16 is 2⁻²⁴. A gradient of 2⁻³⁰ must not become 0. What is the "
        "smallest power of two by which you must multiply the loss?",
        number(64),
        ("The gradient is multiplied by the same factor as the loss.", "2⁻³⁰ × factor ≥ 2⁻²⁴."),
        "answer = 2**-24 / 2**-30  # 2**6",
        "2⁶ = 64. LossScaleOptimizer begins with 2¹⁵ = 32,768.",
        difficulty=2,
    ),
    "07.resume": Task(
        "Write my_train(make_model, dataset, batch, folder, after_step): one pass with "
        "keras.optimizers.Adam(0.01). After step s (1, 2, …) save a checkpoint in folder, then "
        "call after_step(s), which may end the job. Called again with the same folder, my_train "
        "continues where it was interrupted. Return the model.",
        resuming(),
        (
            "tf.train.Checkpoint(model=…, optimizer=…) holds the weights, Adam's moments and its "
            "step counter.",
            "Build the optimizer (optimizer.build(model.trainable_variables)) before restore; "
            "tf.train.latest_checkpoint(folder) is None in the first run.",
            "Continue in the data, too: dataset.batch(batch).skip(done), where done is "
            "optimizer.iterations.",
        ),
        """
def my_train(make_model, dataset, batch, folder, after_step):
    model, optimizer = make_model(), keras.optimizers.Adam(0.01)
    optimizer.build(model.trainable_variables)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
    if path := tf.train.latest_checkpoint(folder):
        checkpoint.restore(path)
    done = int(optimizer.iterations.numpy())
    for images, labels in dataset.batch(batch).skip(done):
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels, model(images, training=True))
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        done += 1
        checkpoint.save(f"{folder}/step")
        after_step(done)
    return model
""",
        "Interrupted twice and continued, it has the weights of the run without interruption.",
        difficulty=3,
    ),
}

TASKS = (
    LECTURE_00
    | LECTURE_01
    | LECTURE_02
    | LECTURE_03
    | LECTURE_04
    | LECTURE_05
    | LECTURE_06
    | LECTURE_07
)
