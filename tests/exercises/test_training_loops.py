"""Training loops in one process: correct ones pass in any style, each fault is named.

Most loops run eagerly: a graph traced for each would take most of the time.
"""

from contextlib import nullcontext
from functools import partial
from pathlib import Path

import keras
import pytest
import tensorflow as tf

from labkit.exercises.judges.serial import BATCH
from labkit.exercises.judges.training_loops import accumulation, clipping, resuming, training_loop
from labkit.exercises.task import Wrong

pytestmark = pytest.mark.usefixtures("four")
LOOP, ACCUMULATE, CLIP, RESUME = training_loop, accumulation, clipping, resuming
SUM, MEAN = tf.distribute.ReduceOp.SUM, tf.distribute.ReduceOp.MEAN


def entropy(labels, logits):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)


def gradients_of(model, images, labels, divide_by):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(entropy(labels, model(images, training=True))) / divide_by
    return tape.gradient(loss, model.trainable_variables)


# Under a strategy.


def by_batch(losses, global_batch):
    return tf.nn.compute_average_loss(losses, global_batch_size=global_batch)


def by_sum(strategy, each):
    return strategy.reduce(SUM, each, axis=None)


def loop(*, shuffle=False, scope=True, outside=False, loss=by_batch, reduce=by_sum, apply=True,
         distribute=True, losses_of=list, repeat=1, summed=False):  # fmt: skip
    """A loop of one's own, right unless told otherwise."""

    def train(strategy, make_model, dataset, global_batch):
        with strategy.scope() if scope else nullcontext():
            model, optimizer = make_model(), keras.optimizers.SGD(0.1)
        if outside:
            optimizer = keras.optimizers.SGD(0.1)

        def step(images, labels):
            with tf.GradientTape() as tape:
                losses = entropy(labels, model(images, training=True))
                value = loss(losses, global_batch)
            gradients = tape.gradient(value, model.trainable_variables)
            if summed:
                gradients = tf.distribute.get_replica_context().all_reduce("sum", gradients)
            for _ in range(apply):
                optimizer.apply(gradients, model.trainable_variables)
            return value

        def train_step(images, labels):
            each = strategy.run(step, args=(images, labels))
            return reduce(strategy, each)

        if shuffle:
            dataset = dataset.shuffle(1000, seed=1)
        batches = dataset.batch(global_batch).repeat(repeat)
        if distribute:
            batches = strategy.experimental_distribute_dataset(batches)
        losses = [train_step(images, labels) for images, labels in batches]
        return model, losses_of(losses)

    return train


def beside_the_replicas(strategy, make_model, dataset, global_batch):
    with strategy.scope():
        model, optimizer = make_model(), keras.optimizers.SGD(0.1)
        for images, labels in dataset.batch(global_batch):
            found = gradients_of(model, images, labels, global_batch)
            optimizer.apply(found, model.trainable_variables)


def from_function(strategy, make_model, dataset, global_batch):
    """Each replica's batches come from a function; the whole pass is one tf.function."""
    share = global_batch // strategy.num_replicas_in_sync
    batches = strategy.distribute_datasets_from_function(lambda context: dataset.batch(share))
    with strategy.scope():
        model, optimizer = make_model(), keras.optimizers.SGD(0.1)
        total = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")

    def step(images, labels):
        with tf.GradientTape() as tape:
            loss = total(labels, model(images, training=True)) / global_batch
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    @tf.function
    def one_pass():
        losses, number = tf.TensorArray(tf.float32, 0, dynamic_size=True), 0
        for images, labels in batches:
            each = strategy.run(step, args=(images, labels))
            losses = losses.write(number, strategy.reduce("SUM", each, axis=None))
            number = number + 1
        return losses.stack()

    return model, one_pass().numpy()


def own_update(strategy, make_model, dataset, global_batch, summed=True):
    """Without an optimizer: the gradients are all-reduced and subtracted by hand."""
    with strategy.scope():
        model = make_model()

    def step(images, labels):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(entropy(labels, model(images, training=True)))
            loss /= strategy.num_replicas_in_sync
        gradients = tape.gradient(loss, model.trainable_variables)
        context = tf.distribute.get_replica_context()
        if summed:
            gradients = context.all_reduce("sum", gradients)

        def update(strategy, *gradients):
            for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
                strategy.extended.update(
                    variable.value, lambda v, g: v.assign_sub(0.1 * g), args=(gradient,)
                )

        context.merge_call(update, args=tuple(gradients))
        return loss

    run = tf.function(lambda x, y: strategy.run(step, args=(x, y)))
    batches = strategy.experimental_distribute_dataset(dataset.batch(global_batch))
    return model, [float(strategy.reduce("SUM", run(x, y), axis=None)) for x, y in batches]


def applied_across_replicas(strategy, make_model, dataset, global_batch, scope=False):
    """Gradients are reduced and applied between the steps: Keras allows it outside the scope."""
    with strategy.scope():
        model, optimizer = make_model(), keras.optimizers.SGD(0.1)

    def local(images, labels):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(entropy(labels, model(images, training=True))) / global_batch
        return loss, tape.gradient(loss, model.trainable_variables)

    losses = []
    for pair in strategy.experimental_distribute_dataset(dataset.batch(global_batch)):
        loss, each = strategy.run(local, args=pair)
        total = [by_sum(strategy, one) for one in each]
        with strategy.scope() if scope else nullcontext():
            optimizer.apply(total, model.trainable_variables)
        losses.append(by_sum(strategy, loss))
    return model, losses


def keras_fit(strategy, make_model, dataset, global_batch):
    with strategy.scope():
        model = make_model()
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        model.optimizer.learning_rate = 0.1
    losses = []
    for images, labels in dataset.batch(global_batch):
        step = tf.data.Dataset.from_tensors((images, labels))
        losses += model.fit(step, shuffle=False, verbose=0).history["loss"]
    return model, losses


def only_replica_0_applies(strategy, make_model, dataset, global_batch):
    with strategy.scope():
        model, optimizer = make_model(), keras.optimizers.SGD(0.1)

    def step(images, labels):
        found = gradients_of(model, images, labels, global_batch)
        if tf.distribute.get_replica_context().replica_id_in_sync_group == 0:
            optimizer.apply(found, model.trainable_variables)

    for pair in strategy.experimental_distribute_dataset(dataset.batch(global_batch)):
        strategy.run(step, args=pair)
    return model, []


def replicas_for_show(strategy, make_model, dataset, global_batch):
    """Both replicas run forward, and one device trains with the whole batch."""
    with strategy.scope():
        model, optimizer = make_model(), keras.optimizers.SGD(0.1)
    losses = []
    for images, labels in dataset.batch(global_batch):
        halves = tf.data.Dataset.from_tensors(images)
        for part in strategy.experimental_distribute_dataset(halves.unbatch().batch(global_batch)):
            strategy.run(lambda images: model(images, training=True), args=(part,))
        with tf.GradientTape() as tape:
            losses.append(tf.reduce_mean(entropy(labels, model(images, training=False))))
        found = tape.gradient(losses[-1], model.trainable_variables)
        optimizer.apply(found, model.trainable_variables)
    return model, losses


# Accumulated, clipped, resumed.


def accumulate(*, divide=lambda batch, k: batch, reset=True, each=False, parts=None):
    """A loop of one's own, right unless told otherwise."""

    def train(make_model, dataset, batch, micro_batches):
        model, optimizer = make_model(), keras.optimizers.SGD(0.1)
        variables = model.trainable_variables
        total = None
        for images, labels in dataset.batch(batch):
            if reset:
                total = None
            k = parts or micro_batches
            for micro in zip(tf.split(images, k), tf.split(labels, k), strict=True):
                found = gradients_of(model, *micro, divide(batch, micro_batches))
                if each:
                    optimizer.apply(found, variables)
                if total is None:
                    total = found
                else:
                    total = [a + b for a, b in zip(total, found, strict=True)]
            if not each:
                optimizer.apply(total, variables)
        return model

    return train


def accumulated_by_keras(make_model, dataset, batch, micro_batches):
    model = make_model()
    optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=micro_batches)
    size = batch // micro_batches
    for images, labels in dataset.batch(size):
        optimizer.apply(gradients_of(model, images, labels, size), model.trainable_variables)
    return model


def one_tape_around_all(make_model, dataset, batch, micro_batches):
    model, optimizer = make_model(), keras.optimizers.SGD(0.1)
    for images, labels in dataset.batch(batch):
        with tf.GradientTape() as tape:
            loss = sum(
                tf.reduce_sum(entropy(labels[k::micro_batches], model(part, training=True)))
                for k in range(micro_batches)
                for part in [images[k::micro_batches]]
            )
            loss /= batch
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    return model


def losses_summed_in_the_last_tape(make_model, dataset, batch, micro_batches):
    model, optimizer = make_model(), keras.optimizers.SGD(0.1)
    for images, labels in dataset.batch(batch):
        loss = 0.0
        for k in range(micro_batches):
            with tf.GradientTape() as tape:
                logits = model(images[k::micro_batches], training=True)
                loss += tf.reduce_sum(entropy(labels[k::micro_batches], logits)) / batch
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    return model


def each_replica(found, limit):
    return tf.clip_by_global_norm(found, limit)[0]


def clip(*, before=lambda found, limit: found, after=each_replica, again=True, reduce=True):
    def train(strategy, make_model, dataset, global_batch, clip_norm):
        with strategy.scope():
            model, optimizer = make_model(), keras.optimizers.SGD(0.1)

        def step(images, labels):
            found = gradients_of(model, images, labels, global_batch)
            found = before(found, clip_norm)
            if reduce:
                found = tf.distribute.get_replica_context().all_reduce("sum", found)
                found = after(found, clip_norm)
                if again:
                    found = [gradient / strategy.num_replicas_in_sync for gradient in found]
            optimizer.apply(found, model.trainable_variables)

        batches = strategy.experimental_distribute_dataset(dataset.batch(global_batch))
        for images, labels in batches:
            strategy.run(step, args=(images, labels))
        return model

    return train


def clipped_by_keras(*, apply_in_scope=False, inside=False, divide=1, **clipping):
    """`clipping` is given to the optimizer as it is, or with the limit where that is None."""

    def train(strategy, make_model, dataset, global_batch, clip_norm):
        with strategy.scope():
            model = make_model()
            limit = {name: clip_norm if one is None else one for name, one in clipping.items()}
            optimizer = keras.optimizers.SGD(0.1, **limit)
            optimizer.build(model.trainable_variables)

        def step(images, labels):
            found = gradients_of(model, images, labels, global_batch // divide)
            if inside:
                optimizer.apply(found, model.trainable_variables)
            return found

        for pair in strategy.experimental_distribute_dataset(dataset.batch(global_batch)):
            found = strategy.run(step, args=pair)
            if not inside:
                total = [strategy.reduce("SUM", one, axis=None) for one in found]
                with strategy.scope() if apply_in_scope else nullcontext():
                    optimizer.apply(total, model.trainable_variables)
        return model

    return train


def clipped_across_replicas(strategy, make_model, dataset, global_batch, clip_norm):
    """The replicas return gradients; one sum, one clip, one update from outside."""
    with strategy.scope():
        model = make_model()

    def local(images, labels):
        return gradients_of(model, images, labels, global_batch)

    for pair in strategy.experimental_distribute_dataset(dataset.batch(global_batch)):
        each = strategy.run(local, args=pair)
        total = [strategy.reduce("SUM", one, axis=None) for one in each]
        factor = tf.minimum(1.0, clip_norm / tf.linalg.global_norm(total))
        with strategy.scope():
            for variable, gradient in zip(model.trainable_variables, total, strict=True):
                variable.value.assign_sub(0.1 * factor * gradient)
    return model


def resumed_by_load_model(make_model, dataset, batch, folder, after_step):
    file = Path(folder) / "model.keras"
    if file.exists():
        model = keras.models.load_model(file)
    else:
        model = make_model()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(0.01), loss)
    for images, labels in dataset.batch(batch).skip(int(model.optimizer.iterations)):
        model.train_on_batch(images, labels)
        model.save(file)
        after_step(int(model.optimizer.iterations))
    return model


def resumed_from_memory():
    """The state is kept in the process; the folder stays empty."""
    kept = []

    def train(make_model, dataset, batch, folder, after_step):
        if not kept:
            kept.extend([make_model(), keras.optimizers.Adam(0.01), 0])
        model, optimizer, done = kept
        for images, labels in dataset.batch(batch).skip(done):
            found = gradients_of(model, images, labels, batch)
            optimizer.apply(found, model.trainable_variables)
            kept[2] += 1
            after_step(kept[2])
        return model

    return train


def resume(*, optimizer_too=True, position=True, weights=True, late=False, anew=False):
    def train(make_model, dataset, batch, folder, after_step):
        model, optimizer = make_model(), keras.optimizers.Adam(0.01)
        optimizer.build(model.trainable_variables)
        done = tf.Variable(0)
        kept = {"done": done}
        if optimizer_too:
            kept["optimizer"] = optimizer
        if weights:
            kept["model"] = model
        else:  # a checkpoint of the optimizer alone would hold the weights as well
            kept["optimizer"] = tf.train.Checkpoint(all=[one.value for one in optimizer.variables])
        manager = tf.train.CheckpointManager(tf.train.Checkpoint(**kept), folder, max_to_keep=1)
        manager.restore_or_initialize()
        begin = int(done)
        for pair in dataset.batch(batch).skip(begin if position else 0):
            found = gradients_of(model, *pair, batch)
            optimizer.apply(found, model.trainable_variables)
            done.assign_add(1)
            if late:
                after_step(int(done))
                manager.save()
            else:
                manager.save()
                after_step(int(done) - begin * anew)
        return model

    return train


def resumed_with_an_iterator(make_model, dataset, batch, folder, after_step):
    """The position is that of the dataset's iterator, in the checkpoint."""
    model, optimizer = make_model(), keras.optimizers.Adam(0.01)
    optimizer.build(model.trainable_variables)
    iterator = iter(dataset.batch(batch))
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, iterator=iterator)
    if path := tf.train.latest_checkpoint(folder):
        checkpoint.restore(path)
    for images, labels in iterator:
        found = gradients_of(model, images, labels, batch)
        optimizer.apply(found, model.trainable_variables)
        checkpoint.save(f"{folder}/step")
        after_step(int(optimizer.iterations.numpy()))
    return model


# The worked solutions, which test_tasks runs, are other styles still.
RIGHT = [
    (LOOP, from_function, "dataset from a function"),
    (LOOP, own_update, "an update of one's own"),
    (LOOP, keras_fit, "model.fit"),
    (LOOP, applied_across_replicas, "an update between the steps"),
    (ACCUMULATE, accumulate(parts=8), "smaller micro-batches"),
    (ACCUMULATE, accumulated_by_keras, "gradient_accumulation_steps of Keras"),
    (CLIP, clipped_across_replicas, "clipped outside the replicas"),
    (CLIP, clipped_by_keras(global_clipnorm=None), "global_clipnorm outside the replicas"),
    (RESUME, resume(), "a counter in the checkpoint"),
    (RESUME, resumed_by_load_model, "load_model"),
    (RESUME, resumed_with_an_iterator, "the iterator in the checkpoint"),
]
WRONG = [
    (LOOP, loop(loss=lambda losses, _: tf.reduce_mean(losses)), "2 times too large"),
    (LOOP, loop(loss=lambda losses, _: tf.reduce_sum(losses)), "sum, not a mean"),
    (LOOP, loop(scope=False), "outside strategy.scope()"),
    (LOOP, loop(reduce=lambda strategy, each: each), "strategy.reduce"),
    (LOOP, loop(reduce=lambda strategy, each: strategy.experimental_local_results(each)[0]),
     "one replica's share"),
    (LOOP, loop(reduce=lambda strategy, each: strategy.reduce(MEAN, each, axis=None)), "0.5 times"),
    (LOOP, loop(shuffle=True), "do not shuffle"),
    (LOOP, loop(distribute=False), f"the same {BATCH} images"),
    (LOOP, loop(apply=False), "have not changed"),
    (LOOP, loop(summed=True), "leave out all_reduce"),
    (LOOP, replicas_for_show, "not computed from the images that the replicas got"),
    (LOOP, only_replica_0_applies, "every replica must call them"),
    (LOOP, loop(apply=2), "apply it once in each step"),
    (LOOP, partial(applied_across_replicas, scope=True), "out of the scope's block"),
    (LOOP, loop(outside=True), "optimizer was made outside strategy.scope()"),
    (LOOP, loop(repeat=None), "the loop has no end"),
    (LOOP, beside_the_replicas, "Call the step with strategy.run"),
    (LOOP, loop(losses_of=lambda losses: [BATCH * one for one in losses]), "They are sums"),
    (LOOP, partial(own_update, summed=False), "copies of the weights differ"),
    (LOOP, lambda strategy, make_model, dataset, batch: 1 / 0, "ZeroDivisionError"),
    (ACCUMULATE, accumulate(divide=lambda batch, k: batch // k), "4 times too large"),
    (ACCUMULATE, accumulate(each=True), "after each micro-batch"),
    (ACCUMULATE, accumulate(reset=False), "never reset"),
    (ACCUMULATE, accumulate(parts=1), "got 16 images in one call"),
    (ACCUMULATE, one_tape_around_all, "no memory is saved"),
    (ACCUMULATE, losses_summed_in_the_last_tape, "Only the last micro-batch"),
    (CLIP, clip(after=lambda found, limit: found), "not clipped"),
    (CLIP, clip(before=each_replica, reduce=False), "Each replica clips its own"),
    (CLIP, clip(after=lambda found, limit: [tf.clip_by_norm(one, limit) for one in found]),
     "by their own norm"),
    (CLIP, clipped_by_keras(inside=True, clipnorm=None), "clipnorm"),
    (CLIP, clipped_by_keras(global_clipnorm=None, apply_in_scope=True), "out of the scope"),
    (CLIP, clipped_by_keras(global_clipnorm=None, divide=2), "mean of a replica's share"),
    (CLIP, clip(again=False), "summed over the replicas again"),
    (RESUME, resume(optimizer_too=False), "state of the optimizer was not"),
    (RESUME, resume(weights=False), "weights were not restored"),
    (RESUME, resume(position=False), "first image of the dataset"),
    (RESUME, resume(late=True), "before after_step"),
    (RESUME, resumed_from_memory(), "folder is empty"),
    (RESUME, resume(anew=True), "go on counting"),
]  # fmt: skip


@pytest.mark.parametrize(("judge", "train", "style"), RIGHT, ids=[style for *_, style in RIGHT])
def test_a_correct_loop_passes_in_any_style(judge, train, style):
    judge(train)


@pytest.mark.parametrize(("judge", "train", "words"), WRONG, ids=[words for *_, words in WRONG])
def test_a_wrong_loop_is_told_what_is_wrong(judge, train, words):
    with pytest.raises(Wrong) as fault:
        judge(train)
    assert words in str(fault.value)
