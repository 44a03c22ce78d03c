"""Judges of programs for several processes: a worker's, and that of a parameter server's chief.

Real processes run them. Two workers run the worker's program twice: the first run trains a pass
and saves, the second starts from the checkpoint, and its last batch is smaller. Or worker 1 is
killed in the first run. The chief's program leads two workers and a server, on which a layer of
the model counts the steps that train it. A TF_CONFIG that a student writes is only read.
"""

import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Collection
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
    RATE,
    REPLICAS,
    STEPS,
    check_losses,
    check_weights,
    each_loss,
    equal_copies,
    make_data,
    momentum,
    train,
    whole_batches,
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
LOST_A_PEER = ("Unavailable", "DeadlineExceeded", "Aborted", "Cancelled", "Internal", "timed out")
UNEVEN = BATCH * STEPS - 5  # images of the second run: its last batch cannot be halved
KILLED_IN, MOMENTUM = 5, 0.9  # the step in which worker 1 is killed
BEGAN_ANEW = (
    "Started again, it began with the first step: all work was lost. Save after every second step, "
    "and restore tf.train.latest_checkpoint(folder) before the loop."
)
UPDATES = 100  # a count that two workers overwrite loses a quarter of them
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


class Killed(list[Any]):
    """What a worker sees until it is killed: in its forward pass, as any machine may be."""

    def append(self, seen: Any) -> None:
        """Note these images, or end this process."""
        super().append(seen)
        if sum(training for _, _, training in self) == KILLED_IN:
            os.kill(os.getpid(), signal.SIGKILL)


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
        folders = _make_folders(home)
        first = _run(c, my_train, folders)
        shares = check_images([each for report in first for each in report.seen])
        check_weights(_copies(first))
        for report in first:
            check_losses(report.losses, shares)
        _check_files(folders)
        second = _run(c, my_train, folders, UNEVEN)
        check_images([each for report in second for each in report.seen], UNEVEN)
        _check_restart(_copies(second))


def _run(
    c: Cluster,
    my_train: Any,
    folders: list[Path],
    images: int = BATCH * STEPS,
    *,
    restart: bool = False,
    killed: Collection[int] = (),
) -> list[Report]:
    """What each worker reports; nothing if one was killed, as it should be."""
    timeout = TIMEOUT * slowdown()
    those = (list(map(str, folders)), timeout, images, restart, killed)
    outcome = c.start(_work, my_train, *those, show=False, tolerate=killed).finish(TIME_LIMIT)
    found: dict[int, Report] = outcome.results
    if any(rank not in found for rank in killed):
        return []
    faults = {rank: report.fault for rank, report in found.items() if report.fault}
    # A worker that lost the other one is not the cause.
    lost = {rank for rank in faults if any(kind in faults[rank] for kind in LOST_A_PEER)}
    for rank in sorted(faults, key=lambda rank: rank in lost):
        text = faults[rank]
        if rank in lost:
            _check_same_step(found)
            text = (
                f"It waited in a collective for worker {1 - rank}, which did not take part or had "
                "ended: every worker must make every step and every reduce, also the one that "
                f"saves nothing. {text}"
            )
        raise Wrong(f"On worker {rank}: {text}")
    outcome.raise_errors()
    return [found[rank] for rank in range(REPLICAS)]


def _check_same_step(found: dict[int, Report]) -> None:
    """Two workers that began with images of different steps."""
    first = {images[0] // BATCH + 1 for one in found.values() for _, images, _ in one.seen[:1]}
    if len(first) > 1:
        raise Wrong(
            f"One worker began with step {min(first)} and the other with step {max(first)}. Every "
            "worker must restore the checkpoint, not only the chief."
        )


def _work(
    rank: int,
    my_train: Callable[..., Any],
    folders: list[str],
    timeout: float,
    images: int,
    restart: bool,
    killed: Collection[int],
) -> Report:
    """On a worker."""
    from labkit.strategies.workers import workers

    tf = import_tensorflow()
    strategy = workers(timeout=timeout).strategy()
    made, report = Models(strategy), Report()
    if rank in killed:
        made.seen = Killed()
    dataset = tf.data.Dataset.from_tensor_slices(make_data()).take(images)

    def examine(called: Callable[..., Any]) -> None:
        try:
            with made.following():
                result = called(strategy, made.make, dataset, BATCH, folders[rank])
        except Wrong:
            made.check_scope()  # TensorFlow's own sentence on this says little
            raise
        made.check_scope()
        if restart and not isinstance(result, tuple):  # it need not return losses
            result = result, ()
        model, losses = returned(result, made.models)
        report.weights = [variable.numpy() for variable in model.trainable_variables]
        report.losses = [_number(loss) for loss in each_loss(losses)]

    try:
        function(examine, seconds=TIME_LIMIT)(my_train)
    except LabError as fault:
        report.fault = str(fault)
    report.seen = list(made.seen)
    return report


def _number(value: Any) -> float | None:
    with suppress(TypeError, ValueError):
        return float(value.numpy() if hasattr(value, "numpy") else value)
    return None


def _copies(reports: list[Report]) -> list[tuple[Any, ...]]:
    return list(zip(*(report.weights for report in reports), strict=True))


def _make_folders(home: str) -> list[Path]:
    """A folder each, so that it is seen who writes what; before the second run they are one."""
    folders = [Path(home, str(rank), "shared") for rank in range(REPLICAS)]
    for folder in folders:
        folder.mkdir(parents=True)
    return folders


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
    for one, other in (folders, folders[::-1]):
        shutil.copytree(one, other, dirs_exist_ok=True)


def _check_restart(copies: list[tuple[Any, ...]]) -> None:
    """After the second run the weights must be those of two passes, on both workers."""

    def far(weights: Any) -> float:
        return max(float(abs(each[0] - w).max()) for each, w in zip(copies, weights, strict=True))

    if far([each[1] for each in copies]) > CLOSE:
        raise Wrong(
            "Started again, the workers end with different weights: one has read the checkpoint "
            "and the other has not. Every worker must restore it, not only the chief."
        )
    whole, last = whole_batches(), range(BATCH * (STEPS - 1), UNEVEN)
    again = [*whole[:-1], [last]]
    if far(train(steps=whole + again)[0]) <= CLOSE:
        return
    if far(train(steps=again)[0]) <= CLOSE:
        raise Wrong(
            "Started again with the same folder, it began with new weights. Before the first "
            "step, restore tf.train.latest_checkpoint(folder) on every worker."
        )
    raise Wrong(
        "Started again from the checkpoint, it does not end with the weights that the serial "
        "program has after two passes. Save after the last step, and restore before the first. The "
        f"last batch of the second run has {len(last)} images: divide it by global_batch, too."
    )


# A worker that is killed.


@judged
def restarted_loop(my_train: Any) -> None:
    """A function of (strategy, make_model, dataset, global_batch, folder) that returns the model.

    It trains one pass by SGD with momentum and saves after every second step. Worker 1 is killed
    in step KILLED_IN; both start again, and must end as a training that was never interrupted.
    """
    with (
        tempfile.TemporaryDirectory(prefix="labkit-restart-") as home,
        Cluster(REPLICAS, variables=cpu_only) as c,
    ):
        folders = _make_folders(home)
        if _run(c, my_train, folders, restart=True, killed={1}):
            raise Wrong(f"It trained fewer than {KILLED_IN} steps. One pass has {STEPS}.")
        if not any(Path(home).rglob("*/shared/**/*")):
            raise Wrong(
                f"Worker 1 was killed in step {KILLED_IN}, and the folder is empty. Save inside "
                "the loop, after every second step: what comes after the loop was never reached."
            )
        _check_files(folders)
        _check_continued(_run(c, my_train, folders, restart=True))


def _check_continued(reports: list[Report]) -> None:
    """The second run must end as a training that was not interrupted, and not repeat all of it."""
    _check_same_step(dict(enumerate(reports)))
    first = next((i[0] // BATCH for _, i, training in reports[0].seen if training), STEPS)
    whole = whole_batches()
    try:
        weights = equal_copies(_copies(reports))
    except Wrong:
        if first:
            raise
        raise Wrong(BEGAN_ANEW) from None

    def ends(kept: int, begun: int, forgets: int = -1) -> bool:
        """Whether it made so many steps of the first run, and those of the second from here on."""
        right = train(momentum(MOMENTUM, forgets), whole[:kept] + whole[begun:])[0]
        return all(bool(abs(a - b).max() <= CLOSE) for a, b in zip(weights, right, strict=True))

    if ends(first, first):
        if not first:
            raise Wrong(BEGAN_ANEW)
        return
    if any(ends(kept, 0, forgets) for kept in (2, 4) for forgets in (-1, kept)):
        raise Wrong(
            "The weights are restored, and the images begin anew. Keep the number of steps in the "
            "checkpoint, and skip so many batches: dataset.batch(global_batch).skip(int(done))."
        )
    if ends(first, first, first):
        raise Wrong(
            "The optimizer's momentum begins anew. Put the optimizer into the checkpoint, and call "
            "optimizer.build(model.trainable_variables) before you restore."
        )
    raise Wrong(
        "Its weights are not those of a training that was not interrupted: "
        f"keras.optimizers.SGD({RATE}, momentum={MOMENTUM}) and the mean cross-entropy of logits."
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


class Watched:
    """A coordinator whose steps are counted, the waits between them, and the server's counters."""

    def __init__(self, coordinator: Any) -> None:
        tf = import_tensorflow()
        self.strategy, self.done = coordinator.strategy, coordinator.done
        self.models, self.counters, self.in_scope = list[Any](), list[Any](), True
        self.scheduled = self.waits = self.datasets = 0
        with self.strategy.scope():
            self.updates = tf.Variable(0, dtype=tf.int64, trainable=False)
        coordinator.schedule = partial(self._schedule, coordinator.schedule)
        per_worker = partial(self._dataset, coordinator.create_per_worker_dataset)
        coordinator.create_per_worker_dataset = per_worker
        for name in ("join", "fetch", "done"):
            setattr(coordinator, name, partial(self._wait, getattr(coordinator, name)))

    def make_model(self) -> Any:
        """What a student calls."""
        tf = import_tensorflow()

        def note(_: Any, training: bool) -> Any:
            add = partial(tf.raw_ops.AssignAddVariableOp, value=tf.constant(1, tf.int64))
            return add(resource=self.updates.handle) if training else None

        self.in_scope &= tf.distribute.get_strategy() is self.strategy
        self.models.append(make_layers(watch_layer(note)))
        return self.models[-1]

    def variable(self, create: Callable[..., Any], **keywords: Any) -> Any:
        """A variable that is made; on the server it may be a counter, unless it is Keras' own."""
        made = create(**keywords)
        own = not re.search("iteration|learning_rate", made.name)
        if own and made.shape.rank == 0 and "/job:ps" in made.device:
            self.counters.append(made)
        return made

    def _schedule(self, call: Callable[..., Any], *given: Any, **keywords: Any) -> Any:
        value = call(*given, **keywords)
        value.fetch, self.scheduled = partial(self._wait, value.fetch), self.scheduled + 1
        return value

    def _dataset(self, call: Callable[..., Any], *given: Any, **keywords: Any) -> Any:
        self.datasets += 1
        return call(*given, **keywords)

    def _wait(self, call: Callable[..., Any], *given: Any, **keywords: Any) -> Any:
        self.waits += 0 < self.scheduled < UPDATES
        return call(*given, **keywords)


def _examine_lead(coordinator: Any, lead: Callable[..., Any]) -> None:
    tf, watched = import_tensorflow(), Watched(coordinator)

    def batches(size: int) -> Any:
        return tf.data.Dataset.from_tensor_slices(make_data()).shuffle(size).repeat().batch(BATCH)

    def run(size: int, steps: int) -> Any:
        try:
            result = lead(coordinator, watched.make_model, partial(batches, size), steps)
        except Wrong as fault:
            if watched.in_scope and "merge_call" in str(fault):
                raise Wrong(
                    "optimizer.apply_gradients was called outside strategy.run. In the step write "
                    "coordinator.strategy.run(replica_step, args=next(batches))."
                ) from None
            if watched.in_scope:
                raise
        if not watched.in_scope:
            raise Wrong(
                "make_model() was called outside coordinator.strategy.scope(): its variables lie "
                "on the chief and not on the parameter server."
            )
        return result

    with tf.variable_creator_scope(watched.variable):
        result = run(BATCH * STEPS, UPDATES)
        at_return = int(watched.updates)
        _, counted = returned(result, watched.models, "the number of updates")
        end = time.monotonic() + DRAIN
        while not watched.done() and time.monotonic() < end:
            time.sleep(0.01)
        _check_updates(watched.scheduled, at_return, int(watched.updates), _number(counted))
        _check_counted(watched, counted)
        model, _ = returned(run(1, 1), watched.models)
        _check_first_step(model.get_weights())


def _check_counted(watched: Watched, counted: Any) -> None:
    if watched.scheduled < UPDATES / 10:
        raise Wrong(
            f"The chief scheduled {watched.scheduled} functions for {UPDATES} updates: with a loop "
            "inside a step, one worker makes them all. Let each step be scheduled."
        )
    if not watched.datasets:
        raise Wrong(
            "The images come from the chief, in the arguments of each step. Let every worker make "
            "its own dataset: coordinator.create_per_worker_dataset(make_dataset)."
        )
    if watched.waits > UPDATES / 30:
        raise Wrong(
            f"The chief waited {watched.waits} times before the last step was scheduled: then the "
            "workers wait, too. Schedule all steps, and call coordinator.join() once, at the end."
        )
    if counted is UPDATES or UPDATES not in map(int, watched.counters):
        raise Wrong(
            f"The number {UPDATES} is right, but no variable on the parameter server has counted "
            "the updates: a number of Python's or of the chief's is that of the scheduled steps. "
            "Make a tf.Variable in the scope, call its assign_add(1) in the step, and return it."
        )


def _check_first_step(weights: list[Any]) -> None:
    """The weights after one step with the first batch."""
    right = train(steps=whole_batches()[:1])[0]
    if any(abs(a - b).max() > CLOSE for a, b in zip(weights, right, strict=True)):
        raise Wrong(
            "One step on one batch does not change the weights as plain SGD does with rate "
            f"{RATE} and the mean cross-entropy of the worker's own batch."
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
    if counted != updates:
        raise Wrong(
            f"{counts} Two workers read the same count, both add one, and one update is lost: a "
            "race condition. `assign_add` is one operation on the server and loses none; reading "
            "and then writing, as optimizer.iterations does, is two."
        )
