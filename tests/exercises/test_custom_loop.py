"""Custom training loops: correct ones pass in any style, each fault is named."""

import keras
import pytest
import tensorflow as tf

from labkit.exercises.custom_loop import accumulation, clipping, resuming
from labkit.exercises.task import Unanswered, Wrong

ACCUMULATE, CLIP, RESUME = accumulation(), clipping(), resuming()


def entropy(labels, logits):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)


def gradients_of(model, images, labels, divide_by):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(entropy(labels, model(images, training=True))) / divide_by
    return tape.gradient(loss, model.trainable_variables)


def accumulate(*, divide=lambda batch, k: batch, combine=None, reset=True, each=False, parts=None,
               apply=True):  # fmt: skip
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
                if total is None or combine == "last":
                    total = found
                else:
                    total = [a + b for a, b in zip(total, found, strict=True)]
            if apply and not each:
                optimizer.apply(total, variables)
        return model

    return train


def accumulated_in_variables(make_model, dataset, batch, micro_batches):
    """A graph for each micro-batch; the sums are variables; strided micro-batches."""
    model, optimizer = make_model(), keras.optimizers.SGD(0.1)
    sums = [tf.Variable(tf.zeros_like(variable)) for variable in model.trainable_variables]

    @tf.function
    def add(images, labels):
        found = gradients_of(model, images, labels, batch)
        for total, gradient in zip(sums, found, strict=True):
            total.assign_add(gradient)

    for images, labels in dataset.batch(batch):
        for part in range(micro_batches):
            add(images[part::micro_batches], labels[part::micro_batches])
        optimizer.apply_gradients(zip(sums, model.trainable_variables, strict=True))
        for total in sums:
            total.assign(tf.zeros_like(total))
    return model


def accumulated_by_keras(make_model, dataset, batch, micro_batches):
    model = make_model()
    optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=micro_batches)
    size = batch // micro_batches
    for images, labels in dataset.batch(size):
        optimizer.apply(gradients_of(model, images, labels, size), model.trainable_variables)
    return model


def clip(*, before=lambda found, limit: found, after=None, divide=lambda batch: batch,
         again=True, reduce=True):  # fmt: skip
    def train(strategy, make_model, dataset, global_batch, clip_norm):
        with strategy.scope():
            model, optimizer = make_model(), keras.optimizers.SGD(0.1)

        def step(images, labels):
            found = gradients_of(model, images, labels, divide(global_batch))
            found = before(found, clip_norm)
            if reduce:
                found = tf.distribute.get_replica_context().all_reduce("sum", found)
                if after:
                    found = after(found, clip_norm)
                else:
                    found, _ = tf.clip_by_global_norm(found, clip_norm)
                if again:
                    found = [gradient / strategy.num_replicas_in_sync for gradient in found]
            optimizer.apply(found, model.trainable_variables)

        run = tf.function(lambda images, labels: strategy.run(step, args=(images, labels)))
        batches = strategy.experimental_distribute_dataset(dataset.batch(global_batch))
        for images, labels in batches:
            run(images, labels)
        return model

    return train


def clipped_across_replicas(strategy, make_model, dataset, global_batch, clip_norm):
    """The replicas return gradients; one sum, one clip, one update from outside."""
    with strategy.scope():
        model = make_model()

    @tf.function
    def local(images, labels):
        return strategy.run(
            lambda images, labels: gradients_of(model, images, labels, global_batch),
            args=(images, labels),
        )

    for images, labels in strategy.experimental_distribute_dataset(dataset.batch(global_batch)):
        total = [strategy.reduce("SUM", one, axis=None) for one in local(images, labels)]
        norm = tf.linalg.global_norm(total)
        factor = tf.minimum(1.0, clip_norm / norm)
        with strategy.scope():
            for variable, gradient in zip(model.trainable_variables, total, strict=True):
                variable.value.assign_sub(0.1 * factor * gradient)
    return model


def resume(*, optimizer_too=True, position=True, weights=True, late=False, restore=True):
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
        if restore:
            manager.restore_or_initialize()
        for images, labels in dataset.batch(batch).skip(int(done) if position else 0):
            found = gradients_of(model, images, labels, batch)
            optimizer.apply(found, model.trainable_variables)
            done.assign_add(1)
            if late:
                after_step(int(done))
                manager.save()
            else:
                manager.save()
                after_step(int(done))
        return model

    return train


def resumed_with_an_iterator(make_model, dataset, batch, folder, after_step):
    """The position is that of the dataset's iterator, in the checkpoint; one graph a step."""
    model, optimizer = make_model(), keras.optimizers.Adam(0.01)
    optimizer.build(model.trainable_variables)
    iterator = iter(dataset.batch(batch))
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, iterator=iterator)
    if path := tf.train.latest_checkpoint(folder):
        checkpoint.restore(path)

    @tf.function
    def step(images, labels):
        found = gradients_of(model, images, labels, batch)
        optimizer.apply(found, model.trainable_variables)

    for images, labels in iterator:
        step(images, labels)
        checkpoint.save(f"{folder}/step")
        after_step(int(optimizer.iterations.numpy()))
    return model


def _by_variable(found, limit):
    return [tf.clip_by_norm(gradient, limit) for gradient in found]


def _each_replica(found, limit):
    return tf.clip_by_global_norm(found, limit)[0]


def _as_it_is(found, limit):
    return found


def other_model(make_model, *_):
    make_model()
    return 3


RIGHT = [
    pytest.param(ACCUMULATE, accumulate(), id="gradients summed in a list"),
    pytest.param(ACCUMULATE, accumulate(parts=8), id="smaller micro-batches"),
    pytest.param(ACCUMULATE, accumulated_in_variables, id="gradients summed in variables"),
    pytest.param(ACCUMULATE, accumulated_by_keras, id="gradient_accumulation_steps of Keras"),
    pytest.param(CLIP, clip(), id="clipped inside the replicas"),
    pytest.param(CLIP, clipped_across_replicas, id="clipped outside the replicas"),
    pytest.param(RESUME, resume(), id="a counter in the checkpoint"),
    pytest.param(RESUME, resumed_with_an_iterator, id="the iterator in the checkpoint"),
]
WRONG = [
    (ACCUMULATE, accumulate(divide=lambda batch, k: batch // k), "4 times too large"),
    (ACCUMULATE, accumulate(divide=lambda batch, k: batch * k), "4 times too small"),
    (ACCUMULATE, accumulate(combine="last"), "Only the last micro-batch"),
    (ACCUMULATE, accumulate(each=True), "after each micro-batch"),
    (ACCUMULATE, accumulate(reset=False), "never reset"),
    (ACCUMULATE, accumulate(divide=lambda batch, k: 1), "sum, not a mean"),
    (ACCUMULATE, accumulate(apply=False), "have not changed"),
    (ACCUMULATE, accumulate(parts=1), "got 32 images in one call"),
    (ACCUMULATE, other_model, "Return the model"),
    (CLIP, clip(after=_as_it_is), "not clipped"),
    (CLIP, clip(before=_each_replica, reduce=False), "Each replica clips its own"),
    (CLIP, clip(before=_each_replica, reduce=False, divide=lambda batch: batch // 2),
     "of its own mean loss, and then they are summed"),
    (CLIP, clip(after=_by_variable), "by their own norm"),
    (CLIP, clip(again=False), "summed over the replicas again"),
    (CLIP, clip(divide=lambda batch: batch // 2), "before they are clipped"),
    (RESUME, resume(optimizer_too=False), "state of the optimizer was not"),
    (RESUME, resume(weights=False), "weights were not restored"),
    (RESUME, resume(position=False), "first image of the dataset"),
    (RESUME, resume(restore=False), "first image of the dataset"),
    (RESUME, resume(late=True), "save before after_step"),
]  # fmt: skip


@pytest.mark.parametrize(("judge", "train"), RIGHT)
def test_a_correct_loop_passes_in_any_style(judge, train):
    judge(train)


@pytest.mark.parametrize(("judge", "train", "words"), WRONG, ids=[words for _, _, words in WRONG])
def test_a_wrong_loop_is_told_what_is_wrong(judge, train, words):
    with pytest.raises(Wrong) as fault:
        judge(train)
    assert words in str(fault.value)


@pytest.mark.parametrize("judge", [ACCUMULATE, CLIP, RESUME])
def test_an_unfinished_loop_is_not_answered_and_a_number_is_no_function(judge):
    with pytest.raises(Unanswered):
        judge(lambda *_: ...)
    with pytest.raises(Wrong, match="not a function"):
        judge(17)
