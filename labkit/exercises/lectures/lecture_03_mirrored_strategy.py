"""The tasks of lecture 03: MirroredStrategy."""

from labkit.exercises.judges.training_loops import training_loop
from labkit.exercises.task import Task

TRAINING_LOOP = """
def my_train(strategy, make_model, dataset, global_batch):
    batches = strategy.experimental_distribute_dataset(dataset.batch(global_batch))
    with strategy.scope():
        model, optimizer = make_model(), keras.optimizers.SGD(0.1)

    def step(images, labels):
        with tf.GradientTape() as tape:
            per_image = tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels, model(images, training=True))
            loss = tf.nn.compute_average_loss(per_image, global_batch_size=global_batch)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    @tf.function
    def train_step(images, labels):
        per_replica = strategy.run(step, args=(images, labels))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica, axis=None)

    return model, [train_step(images, labels) for images, labels in batches]
"""

TASKS = {
    "03.fill": Task(
        "Fill in the blanks of my_train: the batch, the model, the loss and the reduced loss.",
        training_loop,
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
        training_loop,
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
