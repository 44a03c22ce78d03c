"""The tasks of lecture 07: custom training loops."""

from labkit.exercises.judges.answers import number
from labkit.exercises.judges.training_loops import accumulation, clipping, resuming
from labkit.exercises.task import Task

TASKS = {
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
        slips={0.16: "The first step has number 0: step + 1.", 0.02: "Divide by warm_up_steps."},
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
        slips={8: "Each replica has a half of the global batch."},
    ),
    "07.accumulate": Task(
        "Write my_train(make_model, dataset, batch, micro_batches): one pass with plain SGD, "
        "learning rate 0.1, one update for each batch, and never more than batch / micro_batches "
        "images on the device. Return the model.",
        accumulation,
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
        clipping,
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
        slips={6: "That is the exponent.", 32: "With it the gradient is 2⁻²⁵."},
    ),
    "07.resume": Task(
        "Write my_train(make_model, dataset, batch, folder, after_step): one pass with "
        "keras.optimizers.Adam(0.01). After step s (1, 2, …) save a checkpoint in folder, then "
        "call after_step(s), which may end the job. Called again with the same folder, my_train "
        "continues where it was interrupted. Return the model.",
        resuming,
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
