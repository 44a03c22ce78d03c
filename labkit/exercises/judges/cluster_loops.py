"""Judges of programs for several processes: a worker's, and that of a parameter server's chief.

Real processes run them. Two workers run the worker's program twice: the first run trains a pass
and saves, the second starts from the checkpoint, as after a failure. The chief's program leads two
workers and a server, on which a layer of the model counts the steps that train it. A TF_CONFIG that
a student writes is only read.
"""

import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from labkit.cluster import Cluster
from labkit.exercises.judges.answers import function, judged
from labkit.exercises.judges.serial import (
    BATCH,
    CLOSE,
    REPLICAS,
    check_losses,
    check_weights,
    each_loss,
    make_data,
    train,
)
from labkit.exercises.judges.watched_model import (
    Models,
    check_images,
    make_layers,
    returned,
    watch_layer,
)
from labkit.exercises.task import Wrong
from labkit.hardware.devices import import_tensorflow
from labkit.kinds import LabError
from labkit.time_limit import slowdown

TIME_LIMIT = 90.0  # seconds for each run
TIMEOUT = 15.0  # seconds that a worker waits in a collective for the other
DRAIN = 30.0  # seconds for steps that still run after the function has returned
LOST_A_PEER = ("Unavailable", "DeadlineExceeded", "Aborted", "Cancelled", "Internal")
UPDATES = 300
cpu_only = {"CUDA_VISIBLE_DEVICES": ""}  # the question is what is computed, not how fast


# A worker.


def cluster_config(task: str, **cluster: str) -> Callable[[Any], None]:
    """A TF_CONFIG that can work, and is the one that the question asks for."""

    def judge(answer: Any) -> None:
        from labkit.cluster import tf_config

        given = tf_config.check(answer or {})
        if given.cluster != {role: tuple(those.split()) for role, those in cluster.items()}:
            raise Wrong(f"It can work, but its cluster is {given.content()['cluster']}.")
        if given.task != task:
            raise Wrong(f"It can work, but on another machine: it is that of {given.task}.")

    return judge


@dataclass
class Report:
    """What one worker did."""

    fault: str = ""
    seen: list[Any] = field(default_factory=list)
    weights: list[Any] = field(default_factory=list)
    losses: list[Any] = field(default_factory=list)


@judged
def worker_loop(my_train: Any) -> None:
    """A function of (strategy, make_model, dataset, global_batch, folder): (model, losses).

    It restores the last checkpoint of the folder if there is one, trains one pass with plain SGD,
    rate RATE, the mean loss of each global batch, and saves.
    """
    with (
        tempfile.TemporaryDirectory(prefix="labkit-worker-") as home,
        Cluster(REPLICAS, variables=cpu_only) as c,
    ):
        # A folder each, so that it is seen who writes what; before the second run they are one.
        folders = [Path(home, str(rank), "shared") for rank in range(REPLICAS)]
        for folder in folders:
            folder.mkdir(parents=True)
        first = _run(c, my_train, folders)
        shares = check_images([each for report in first for each in report.seen])
        check_weights(_copies(first))
        for report in first:
            check_losses(report.losses, shares)
        _check_files(folders)
        shutil.copytree(folders[0], folders[1], dirs_exist_ok=True)
        shutil.copytree(folders[1], folders[0], dirs_exist_ok=True)
        _check_restart(_copies(_run(c, my_train, folders)))


def _run(c: Cluster, my_train: Any, folders: list[Path]) -> list[Report]:
    timeout = TIMEOUT * slowdown()
    started = c.start(_work, my_train, list(map(str, folders)), timeout, show=False)
    outcome = started.finish(TIME_LIMIT)
    found: dict[int, Report] = outcome.results
    faults = {rank: report.fault for rank, report in found.items() if report.fault}
    # A worker that lost the other one is not the cause.
    for rank in sorted(faults, key=lambda rank: any(kind in faults[rank] for kind in LOST_A_PEER)):
        text = faults[rank]
        if "DeadlineExceeded" in text or "timed out" in text:
            text = (
                f"The other worker did not take part in {timeout:.0f} s: every worker must make "
                f"every step and every reduce, also the one that saves nothing. {text}"
            )
        raise Wrong(f"On worker {rank}: {text}")
    outcome.raise_errors()
    return [found[rank] for rank in range(REPLICAS)]


def _work(rank: int, my_train: Callable[..., Any], folders: list[str], timeout: float) -> Report:
    """On a worker."""
    from labkit.strategies.workers import workers

    tf = import_tensorflow()
    strategy = workers(timeout=timeout).strategy()
    made, report = Models(strategy), Report()
    dataset = tf.data.Dataset.from_tensor_slices(make_data())

    def examine(called: Callable[..., Any]) -> None:
        try:
            with made.following_optimizers():
                result = called(strategy, made.make, dataset, BATCH, folders[rank])
        except Wrong:
            made.check_scope()  # TensorFlow's own sentence on this says little
            raise
        made.check_scope()
        model, losses = returned(result, made.models)
        report.weights = [variable.numpy() for variable in model.trainable_variables]
        report.losses = [_number(loss) for loss in each_loss(losses)]

    try:
        function(examine, seconds=TIME_LIMIT)(my_train)
    except LabError as fault:
        report.fault = str(fault)
    report.seen = made.seen
    return report


def _number(value: Any) -> float | None:
    with suppress(TypeError, ValueError):
        return float(value.numpy() if hasattr(value, "numpy") else value)
    return None


def _copies(reports: list[Report]) -> list[tuple[Any, ...]]:
    return list(zip(*(report.weights for report in reports), strict=True))


def _check_files(folders: list[Path]) -> None:
    written = [
        {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
        for folder in folders
    ]
    if not any(written):
        raise Wrong("After the first run the folder is empty: the chief must save in it.")
    if both := set.intersection(*written):
        raise Wrong(
            f"Both workers wrote {min(both).name!r}: they overwrite each other's file. Only the "
            "chief saves, the worker whose strategy.cluster_resolver.task_id is 0."
        )


def _check_restart(copies: list[tuple[Any, ...]]) -> None:
    """After the second run the weights must be those of two passes, on both workers."""

    def far(weights: Any) -> float:
        return max(float(abs(each[0] - w).max()) for each, w in zip(copies, weights, strict=True))

    if far([each[1] for each in copies]) > CLOSE:
        raise Wrong(
            "Started again, the workers end with different weights: one has read the checkpoint "
            "and the other has not. Every worker must restore it, not only the chief."
        )
    if far(train(passes=2)[0]) <= CLOSE:
        return
    if far(train()[0]) <= CLOSE:
        raise Wrong(
            "Started again with the same folder, it began with new weights. Before the first "
            "step, restore the checkpoint of the folder on every worker: "
            "tf.train.latest_checkpoint(folder) is None where there is none."
        )
    raise Wrong(
        "Started again from the checkpoint, it does not end with the weights that the serial "
        "program has after two passes. Save after the last step, and restore before the first."
    )


# The chief of a parameter server.


@judged
def coordinator_loop(lead: Any) -> None:
    """A function of (coordinator, make_model, make_dataset, steps): (model, number of updates)."""
    from labkit.strategies.parameter_server import ROLES

    with Cluster(roles=ROLES, variables=cpu_only) as c:
        outcome = c.start(_lead, lead, until={0}, show=False).finish(TIME_LIMIT)
    outcome.raise_errors()
    if says := outcome.results[0]:
        raise Wrong(says)


def _lead(rank: int, lead: Callable[..., Any]) -> str:
    """On the chief: what is wrong, "" if nothing is; workers and the server stay in join."""
    from labkit.strategies.parameter_server import join

    try:
        function(partial(_examine_lead, join()), seconds=TIME_LIMIT)(lead)
    except LabError as fault:
        return str(fault)
    return ""


def _examine_lead(coordinator: Any, lead: Callable[..., Any]) -> None:
    tf = import_tensorflow()
    images, labels = make_data()
    models, start, in_scope, scheduled = list[Any](), list[Any](), [True], [0]
    with coordinator.strategy.scope():
        counter = tf.Variable(0, dtype=tf.int64, trainable=False)

    def count(_: Any, training: bool) -> Any:
        add = partial(tf.raw_ops.AssignAddVariableOp, value=tf.constant(1, tf.int64))
        return add(resource=counter.handle) if training else None

    def make_model() -> Any:
        in_scope[0] &= tf.distribute.get_strategy() is coordinator.strategy
        models.append(make_layers(watch_layer(count)))
        start.extend(models[-1].get_weights())
        return models[-1]

    def make_dataset() -> Any:
        every = tf.data.Dataset.from_tensor_slices((images, labels))
        return every.shuffle(len(labels)).repeat().batch(BATCH)

    def check_scope() -> None:
        if not in_scope[0]:
            raise Wrong(
                "make_model() was called outside coordinator.strategy.scope(): its variables lie "
                "on the chief and not on the parameter server."
            )

    schedule = coordinator.schedule

    def counted(*arguments: Any, **keywords: Any) -> Any:
        scheduled[0] += 1
        return schedule(*arguments, **keywords)

    coordinator.schedule = counted
    try:
        result = lead(coordinator, make_model, make_dataset, UPDATES)
    except Wrong as fault:
        check_scope()
        if "merge_call" in str(fault):
            raise Wrong(
                "optimizer.apply_gradients was called outside strategy.run. In the step write "
                "coordinator.strategy.run(replica_step, args=next(batches))."
            ) from None
        raise
    at_return = int(counter.numpy())
    check_scope()
    model, counts = returned(result, models, "the number of updates")
    end = time.monotonic() + DRAIN
    while not coordinator.done() and time.monotonic() < end:
        time.sleep(0.01)
    _check_updates(scheduled[0], at_return, int(counter.numpy()), _number(counts))
    _check_learnt(start, model.get_weights())


def _check_learnt(start: list[Any], after: list[Any]) -> None:
    tf = import_tensorflow()
    images, labels = make_data()

    def loss_of(weights: list[Any]) -> float:
        plain = make_layers()
        plain.set_weights(weights)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, plain(images))
        return float(tf.reduce_mean(losses))

    if all((one == other).all() for one, other in zip(start, after, strict=False)):
        raise Wrong("The weights have not changed: apply the gradients with an optimizer.")
    before, now = loss_of(start[: len(after)]), loss_of(after)
    if not now < 0.8 * before:
        raise Wrong(
            f"The loss was {before:.3f} before and is {now:.3f} after {UPDATES} updates. Minimise "
            "the mean cross-entropy with SGD, rate 0.1."
        )


def _check_updates(scheduled: int, at_return: int, updates: int, counted: float | None) -> None:
    if not updates:
        raise Wrong("No step was trained: schedule steps that call model(images, training=True).")
    if not scheduled:
        raise Wrong(
            "The chief made the steps by itself, one after the other. Give them to the workers: "
            "coordinator.schedule(step, args=(batches,))."
        )
    if at_return < updates:
        raise Wrong(
            f"It returned after {at_return} of {updates} updates: the workers were still "
            "training. schedule only puts a step into a queue. Wait with coordinator.join()."
        )
    if updates != UPDATES:
        raise Wrong(
            f"{updates} updates were made, and {UPDATES} steps were asked for. Schedule each step "
            "once; any free worker takes it."
        )
    if counted is None:
        raise Wrong("The number of updates must be a Python number or a variable: return it.")
    counts = f"{updates} updates were made, and you counted {counted:g}."
    if counted <= 4:
        raise Wrong(
            f"{counts} Python code in a tf.function runs when the function is traced, and not in "
            "each step. Count with a tf.Variable and assign_add."
        )
    if counted < updates:
        raise Wrong(
            f"{counts} Two workers read the same count, both add one, and one update is lost: a "
            "race condition. `assign_add` is one operation on the server and loses none; reading "
            "and then writing, as optimizer.iterations does, is two."
        )
    if counted > updates:
        raise Wrong(f"{counts} Count each step once.")
