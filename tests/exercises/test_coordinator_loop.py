"""A chief's program with a parameter server: correct ones pass, each fault is named."""

from contextlib import nullcontext

import keras
import pytest
import tensorflow as tf

from labkit.exercises.coordinator_loop import coordinator_loop
from labkit.exercises.task import Unanswered, Wrong

judge = coordinator_loop()


def updater(model, optimizer, *, apply):
    def update(images, labels):
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        gradients = tape.gradient(loss, model.trainable_variables)
        if apply:
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    return update


def counting(counter, calls, count):
    calls[0] += 1
    if count == "assign_add":
        counter.assign_add(1)
    if count == "assign":
        counter.assign(counter + 1)


def lead(*, join=True, count="assign_add", times=1, schedule=True, scope=True, apply=True,
         run=True):  # fmt: skip
    """A chief's program of one's own, right unless told otherwise."""

    def my_lead(coordinator, make_model, make_dataset, steps):
        with coordinator.strategy.scope():
            optimizer, counter = keras.optimizers.SGD(0.1), tf.Variable(0, dtype=tf.int64)
        with coordinator.strategy.scope() if scope else nullcontext():
            model = make_model()
        calls, update = [0], updater(model, optimizer, apply=apply)

        @tf.function
        def step(batches):
            images, labels = next(batches)
            if run:
                coordinator.strategy.run(update, args=(images, labels))
            else:
                update(images, labels)
            counting(counter, calls, count)

        make = coordinator.create_per_worker_dataset if schedule else lambda make: make()
        batches = iter(make(make_dataset))
        for _ in range(times * steps):
            if schedule:
                coordinator.schedule(step, args=(batches,))
            else:
                step(batches)
        if join:
            coordinator.join()
        return model, {"calls": calls[0], "iterations": optimizer.iterations}.get(count, counter)

    return my_lead


def own_update(coordinator, make_model, make_dataset, steps):
    """Without strategy.run and without an optimizer; the number of updates is a Python number."""
    with coordinator.strategy.scope():
        model, done = make_model(), tf.Variable(0.0)

    @tf.function
    def step(iterator):
        images, labels = next(iterator)
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)(labels, logits)
        weights = [variable.value for variable in model.trainable_variables]
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(0.1 * gradient)
        done.assign_add(1.0)
        return loss

    iterator = iter(coordinator.create_per_worker_dataset(make_dataset))
    losses = [coordinator.schedule(step, args=(iterator,)) for _ in range(steps)]
    coordinator.join()
    assert len(coordinator.fetch(losses)) == steps
    return model, int(done.numpy())


RIGHT = {"as in the lecture": lead(), "an update of one's own": own_update}

WRONG = {
    "no join": (lead(join=False), ["It returned after", "coordinator.join()"]),
    "counted by reading and writing": (lead(count="assign"), ["race condition", "assign_add"]),
    "counted by Keras": (lead(count="iterations"), ["race condition", "optimizer.iterations"]),
    "counted in Python": (lead(count="calls"), ["when the function is traced"]),
    "scheduled for each worker": (lead(times=2), ["600 updates were made"]),
    "not scheduled": (lead(schedule=False), ["The chief made the steps by itself"]),
    "outside the scope": (lead(scope=False), ["outside coordinator.strategy.scope()"]),
    "an optimizer without strategy.run": (lead(run=False), ["strategy.run"]),
    "no update": (lead(apply=False), ["have not changed"]),
    "an exception": (lambda c, m, d, s: 1 / 0, ["ZeroDivisionError"]),
    "no function": (17, ["17 is not a function"]),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_correct_program_passes(name):
    judge(RIGHT[name])


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_program_is_told_what_is_wrong(name):
    my_lead, words = WRONG[name]
    with pytest.raises(Wrong) as fault:
        judge(my_lead)
    assert all(word.lower() in str(fault.value).lower() for word in words), fault.value


def test_an_unfinished_program_is_not_answered():
    with pytest.raises(Unanswered):
        judge(lambda coordinator, make_model, make_dataset, steps: ...)
