"""The exercises of lecture 11, custom training loops."""

from labkit.exercises.custom_loop import accumulation, clipping, resuming
from labkit.exercises.judges import number
from labkit.exercises.task import Task

TASKS = {
    "11.warm_up": Task(
        "WarmUp(peak=0.4, warm_up_steps=10, steps=100): what is the rate of the step with number 4 "
        "(the first step has number 0)?",
        number(0.4 * 5 / 10),
        "During the warm-up the rate is peak · (step + 1) / warm_up_steps.",
        "Step number 4 is the fifth of ten steps, so half of the peak.",
    ),
    "11.micro_batches": Task(
        "A global batch of 256, 2 replicas, and each device has memory for 32 images. How many "
        "micro-batches does each replica need in a step?",
        number(256 / 2 / 32, "micro-batches"),
        "First the images of one replica in one step.",
        "128 images for each replica, 32 at a time. The update happens once, after the fourth.",
    ),
    "11.accumulate": Task(
        "Write my_train(make_model, dataset, batch, micro_batches): one pass with plain SGD, "
        "learning rate 0.1, one update for each batch, and never more than batch / micro_batches "
        "images on the device. Return the model.",
        accumulation(),
        "Divide the loss by the size of the whole batch, sum the gradients of the micro-batches, "
        "then update once.",
        "The weights are those of the serial program with the whole batch.",
    ),
    "11.clip": Task(
        "Write my_train(strategy, make_model, dataset, global_batch, clip_norm): one pass with "
        "plain SGD, learning rate 0.1, the gradient of the mean loss clipped by its global norm. "
        "Return the model.",
        clipping(),
        'context = tf.distribute.get_replica_context() has all_reduce("sum", gradients). Clip '
        "what it returns.",
        "The norm is that of the sum over all replicas, so the weights are those of one device.",
    ),
    "11.underflow": Task(
        "The smallest positive float16 is 2⁻²⁴. A gradient of 2⁻³⁰ must not become 0. What is the "
        "smallest power of two by which you must multiply the loss?",
        number(2**6),
        "2⁻³⁰ times the scale must be at least 2⁻²⁴.",
        "2⁶ = 64. LossScaleOptimizer begins with 2¹⁵ = 32,768.",
    ),
    "11.resume": Task(
        "Write my_train(make_model, dataset, batch, folder, after_step): one pass with "
        "keras.optimizers.Adam(0.01). After step s (1, 2, …) save a checkpoint in folder, then "
        "call after_step(s), which may end the job. Called again with the same folder, my_train "
        "continues where it was interrupted. Return the model.",
        resuming(),
        "tf.train.Checkpoint(model=…, optimizer=…); build the optimizer before restore; "
        "dataset.batch(batch).skip(done), where done is optimizer.iterations.",
        "Interrupted twice and continued, it has the weights of the run without interruption.",
    ),
}
