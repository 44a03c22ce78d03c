"""The tasks of lecture 02: one device, and its baseline."""

from labkit.exercises.judges.answers import function_task, number
from labkit.exercises.judges.training_loops import accuracy, one_step
from labkit.exercises.task import Task

PROPORTIONAL = "A step has a fixed time, too."
TASKS = {
    "02.steps_per_epoch": Task(
        "60,000 images in batches of 48. How many steps has one epoch?",
        number(1250, "steps"),
        ("Divide the images by the batch.",),
        "answer = 60_000 / 48",
        "1,250 steps, and 1,250 updates of the weights.",
        slips={60_000 * 48: "Divide the images by the batch."},
    ),
    "02.fixed_cost": Task(
        "A step takes 0.40 ms with 32 images and 0.64 ms with 64. Assume that each step has the "
        "same fixed time, and each image takes the same time. How many ms is the fixed time?",
        number(0.16, "ms", within=0.01),
        (
            "The difference between the two times is the time of 32 images.",
            "What is left of the first step without its 32 images?",
        ),
        """
of_32_images = 0.64 - 0.40
answer = 0.40 - of_32_images
""",
        "0.24 ms for 32 images, and a fixed time of 0.16 ms in every step.",
        difficulty=2,
        slips={0.24: "That is the time of 32 images."},
    ),
    "02.my_step_seconds": function_task(
        "A step has a fixed time, the same for every batch, and each image takes the same. Write "
        "my_step_seconds(small, large, batch): small and large are measured pairs "
        "(batch, seconds). Return the seconds of a step with this batch.",
        [((32, 0.40), (64, 0.64), 128), ((32, 0.40), (64, 0.64), 0), ((10, 1.0), (20, 1.0), 500)],
        (
            "The difference of the two times belongs to the additional images.",
            "A batch of 0 images takes the fixed time.",
        ),
        """
def my_step_seconds(small, large, batch):
    for_an_image = (large[1] - small[1]) / (large[0] - small[0])
    fixed = small[1] - small[0] * for_an_image
    return fixed + batch * for_an_image
""",
        "A straight line: its height at 0 is the fixed time, its slope the time of an image.",
        slips=[
            ("return fixed +", "return", "Add the fixed time."),
            ("fixed + batch * for_an_image", "fixed", "That is the fixed time."),
            ("fixed + batch * for_an_image", "batch * small[1] / small[0]", PROPORTIONAL),
        ],
        difficulty=2,
    ),
    "02.my_step": Task(
        "Write my_step(model, optimizer, images, labels): one training step on a batch, with the "
        "mean cross-entropy of the model's logits. Return the loss.",
        one_step,
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
        accuracy,
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
