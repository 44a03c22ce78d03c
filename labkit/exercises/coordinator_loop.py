"""The judge of a chief's program: run with two real workers and a parameter server.

A layer of the model counts, on the server and by `assign_add`, how often the model was trained.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from labkit.cluster import Cluster
from labkit.exercises.judges import check_callable, has_blanks
from labkit.exercises.task import Unanswered, Wrong
from labkit.exercises.training_loop import BATCH, CLASSES, SIZE, make_data
from labkit.exercises.worker_loop import Fault, call, cpu_only
from labkit.hardware.devices import import_tensorflow

__all__ = ["UPDATES", "coordinator_loop"]

TIME_LIMIT = 90.0
DRAIN = 30.0  # seconds for steps that still run after the function has returned
UPDATES = 300


@dataclass
class Report:
    """What the chief did, and what came of it."""

    fault: Fault | None = None
    unanswered: bool = False
    scheduled: int = 0
    in_scope: bool = True
    made: bool = False
    at_return: int = 0
    """Updates when the function returned."""
    updates: int = 0
    """Updates after the last step."""
    counted: Any = None
    """What the function returned as their number."""
    model_returned: bool = True
    moved: float = 0.0
    loss_before: float = 0.0
    loss_after: float = 0.0


def coordinator_loop() -> Callable[[Any], None]:
    """A function of (coordinator, make_model, make_dataset, steps): (model, number of updates)."""

    def judge(lead: Any) -> None:
        check_callable(lead)
        if has_blanks(lead):
            raise Unanswered
        from labkit.strategies.parameter_server import ROLES

        with Cluster(roles=ROLES, environment=cpu_only) as c:
            outcome = c.start(_lead, lead, until={0}, show=False).finish(TIME_LIMIT)
        outcome.raise_errors()
        _judge(outcome.results[0])

    return judge


def _judge(report: Report) -> None:
    if report.fault:
        if report.made and not report.in_scope:
            _raise_scope()
        if "merge_call" in report.fault.text:
            raise Wrong(
                "optimizer.apply_gradients was called outside strategy.run. In the step write "
                "coordinator.strategy.run(replica_step, args=next(batches))."
            )
        raise Wrong(str(report.fault))
    if report.unanswered:
        raise Unanswered
    if not report.made:
        raise Wrong("It never called make_model(). Call it inside coordinator.strategy.scope().")
    if not report.in_scope:
        _raise_scope()
    if not report.model_returned:
        raise Wrong("Return two things: the model, and the number of updates.")
    _judge_updates(report)
    if report.moved == 0:
        raise Wrong("The weights have not changed: apply the gradients with an optimizer.")
    if not report.loss_after < 0.8 * report.loss_before:
        raise Wrong(
            f"The loss was {report.loss_before:.3f} before and is {report.loss_after:.3f} after "
            f"{report.updates} updates. Minimise the mean cross-entropy with SGD, rate 0.1."
        )


def _judge_updates(report: Report) -> None:
    if not report.updates:
        raise Wrong("No step was trained: schedule steps that call model(images, training=True).")
    if not report.scheduled:
        raise Wrong(
            "The chief made the steps by itself, one after the other. Give them to the workers: "
            "coordinator.schedule(step, args=(batches,))."
        )
    if report.at_return < report.updates:
        raise Wrong(
            f"It returned after {report.at_return} of {report.updates} updates: the workers were "
            "still training. schedule only puts a step into a queue. Wait with coordinator.join()."
        )
    if report.updates != UPDATES:
        raise Wrong(
            f"{report.updates} updates were made, and {UPDATES} steps were asked for. Schedule "
            "each step once; any free worker takes it."
        )
    if report.counted is None:
        raise Wrong("The number of updates is no number. Return a Python number or a variable.")
    if report.counted == report.updates:
        return
    counts = f"{report.updates} updates were made, and you counted {report.counted:g}."
    if report.counted <= 4:
        raise Wrong(
            f"{counts} Python code in a tf.function runs when the function is traced, and not in "
            "each step. Count with a tf.Variable and assign_add."
        )
    raise Wrong(
        f"{counts} Two workers read the same count, both add one, and one update is lost: a race "
        "condition. `assign_add` is one operation on the server and loses none; reading and then "
        "writing, as optimizer.iterations does, is two."
        if report.counted < report.updates
        else f"{counts} Count each step once."
    )


def _raise_scope() -> None:
    raise Wrong(
        "make_model() was called outside coordinator.strategy.scope(): its variables lie on the "
        "chief and not on the parameter server."
    )


def _lead(rank: int, lead: Callable[..., Any]) -> Report:
    """On the chief; workers and the server stay in join."""
    from labkit.strategies.parameter_server import join

    coordinator = join()
    tf = import_tensorflow()
    import numpy as np

    report, models = Report(), []
    images, labels = make_data()
    with coordinator.strategy.scope():
        counter = tf.Variable(0, dtype=tf.int64, trainable=False)

    def make_model() -> Any:
        here = tf.distribute.get_strategy()
        report.made, report.in_scope = True, here is coordinator.strategy and report.in_scope
        models.append(_model(counter))
        start.extend(models[-1].get_weights())
        return models[-1]

    def make_dataset() -> Any:
        every = tf.data.Dataset.from_tensor_slices((images, labels))
        return every.shuffle(len(labels)).repeat().batch(BATCH)

    def loss_of(weights: Any) -> float:
        plain = _model(None)
        plain.set_weights(weights)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, plain(images))
        return float(tf.reduce_mean(losses))

    schedule, start = coordinator.schedule, list[Any]()

    def counted(*arguments: Any, **keywords: Any) -> Any:
        report.scheduled += 1
        return schedule(*arguments, **keywords)

    coordinator.schedule = counted
    result = call(lead, coordinator, make_model, make_dataset, UPDATES)
    report.at_return = int(counter.numpy())
    if isinstance(result, Fault) or result is ...:
        report.fault = result if isinstance(result, Fault) else None
        report.unanswered = result is ...
        return report
    report.model_returned = (
        isinstance(result, (tuple, list))
        and len(result) == 2
        and any(result[0] is each for each in models)
    )
    if not report.model_returned:
        return report
    end = time.monotonic() + DRAIN
    while not coordinator.done() and time.monotonic() < end:
        time.sleep(0.01)
    report.updates = int(counter.numpy())
    report.counted = _number(result[1])
    after = result[0].get_weights()
    report.moved = max(float(np.abs(a - b).max()) for a, b in zip(start, after, strict=False))
    report.loss_before, report.loss_after = loss_of(start[: len(after)]), loss_of(after)
    return report


def _number(value: Any) -> float | None:
    try:
        return float(value.numpy() if hasattr(value, "numpy") else value)
    except (TypeError, ValueError):
        return None


def _model(counter: Any) -> Any:
    """A small model; with a counter, its first layer counts the steps that train it."""
    tf = import_tensorflow()
    import keras

    class Count(keras.layers.Layer):  # type: ignore[misc]
        def call(self, images: Any, training: bool = False) -> Any:
            if isinstance(images, keras.KerasTensor) or not training:
                return images
            one = tf.constant(1, tf.int64)
            counted = tf.raw_ops.AssignAddVariableOp(resource=counter.handle, value=one)
            with tf.control_dependencies([counted] if counted is not None else []):
                return tf.identity(images)

    def dense(units: int, seed: int, **options: Any) -> Any:
        start = keras.initializers.GlorotUniform(seed=seed)
        return keras.layers.Dense(units, kernel_initializer=start, **options)

    first = [] if counter is None else [Count()]
    return keras.Sequential(
        [keras.Input(SIZE), *first, keras.layers.Flatten(),
         dense(16, 1, activation="relu"), dense(CLASSES, 2)]
    )  # fmt: skip
