"""Judges of programs for several processes: a worker's, and that of a parameter server's chief.

Real processes run them. Two workers run the worker's program three times: the first run trains a
pass and saves, the others start from the checkpoint, and their last batch is smaller. Or worker 1
is killed in the first run. The chief's program leads two workers and a server, on which a layer of
the model counts the steps that train it. A TF_CONFIG that a student writes is only read.
"""

import os
import re
import signal
import tempfile
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from labkit.cluster import Cluster
from labkit.exercises.judges.answers import beside, function
from labkit.exercises.judges.serial import (
    BATCH,
    REPLICAS,
    STEPS,
    check_losses,
    check_weights,
    each_loss,
    equal_copies,
    make_data,
    momentum,
    near,
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
KILLED_IN, MOMENTUM = 6, 0.9  # worker 1 is killed in a step; it was saved after the fourth
OUTSIDE = (
    "optimizer.apply_gradients was called outside strategy.run. In the step write "
    "coordinator.strategy.run(replica_step, args=next(batches))."
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


Report = dict[str, Any]  # what one worker did: its fault, what the model saw, weights and losses


class Killed(list[Any]):
    """What a worker sees until it is killed: in its forward pass, as any machine may be."""

    def append(self, seen: Any) -> None:
        """Note these images, or end this process."""
        super().append(seen)
        if sum(training for _, _, training in self) == KILLED_IN:
            os.kill(os.getpid(), signal.SIGKILL)


def worker_loop(told: Callable[..., None], my_train: Any) -> None:
    """A function of (strategy, make_model, dataset, global_batch, folder): (model, losses).

    It restores the last checkpoint of the folder if there is one, trains one pass with plain SGD,
    rate RATE, the mean loss of each global batch, and saves.
    """
    first, written = _trained(my_train)
    shares = check_images([each for report in first for each in report["seen"]])
    check_weights(_copies(first))
    for report in first:
        check_losses(report["losses"], shares)
    files = _check_files(written)
    for run in (1, 2):  # a name of a checkpoint that is right once is wrong in the next run
        again, [files, _] = _trained(my_train, UNEVEN, files=files)
        try:
            check_images([each for report in again for each in report["seen"]], UNEVEN)
        except Wrong as fault:
            raise Wrong(f"Started again, with {UNEVEN} images: {fault}") from None
        copies = _copies(again)
        told(
            runs=run + 1,
            same=near([a for a, _ in copies], [b for _, b in copies]),
            ends=lambda *passes, copies=copies: near(
                [each[0] for each in copies], train(steps=[*chain(*passes)])[0]
            ),
            first=whole_batches(),
            later=[*whole_batches()[:-1], [range(BATCH * (STEPS - 1), UNEVEN)]],
        )


Files = dict[str, bytes]


def _trained(
    my_train: Any, images: int = BATCH * STEPS, **settings: Any
) -> tuple[list[Report], list[Files]]:
    """Returns the workers' reports (none if one was killed as planned) and their files."""
    found: tuple[list[Report], list[Files]] = beside(my_train, _workers, images, settings)
    return found


def _workers(
    my_train: Any, images: int, settings: dict[str, Any]
) -> tuple[list[Report], list[Files]]:
    """Run the workers in one folder with these files.

    Without files each worker has a folder of its own, which shows who writes what.
    """
    files = settings.pop("files", {})
    with (
        tempfile.TemporaryDirectory(prefix="labkit-worker-") as home,
        Cluster(REPLICAS, variables=cpu_only) as c,
    ):
        folders = [Path(home, str(rank), "shared") for rank in range(REPLICAS)]
        for folder in folders:
            folder.mkdir(parents=True)
        for name, content in files.items():
            file = folders[0] / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        found = _run(c, my_train, folders[:1] * REPLICAS if files else folders, images, **settings)
        return found, [
            {str(one.relative_to(folder)): one.read_bytes()
             for one in sorted(folder.rglob("*")) if one.is_file()}
            for folder in folders
        ]  # fmt: skip


def _run(
    c: Cluster,
    my_train: Any,
    folders: list[Path],
    images: int,
    *,
    restart: bool = False,
    killed: Collection[int] = (),
) -> list[Report]:
    """Returns the report of each worker, or none if a worker was killed as planned."""
    timeout = TIMEOUT * slowdown()
    those = (list(map(str, folders)), timeout, images, restart, killed)
    outcome = c.start(_work, my_train, *those, show=False, tolerate=killed).finish(TIME_LIMIT)
    found: dict[int, Report] = outcome.results
    if any(rank not in found for rank in killed):
        return []
    faults = {rank: report["fault"] for rank, report in found.items() if report["fault"]}
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
    """Refuse two workers that began with images of different steps."""
    first = {images[0] // BATCH + 1 for one in found.values() for _, images, _ in one["seen"][:1]}
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
    made = Models(strategy)
    report: Report = {"fault": "", "weights": [], "losses": []}
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
        report["weights"] = [variable.numpy() for variable in model.trainable_variables]
        report["losses"] = [_number(loss) for loss in each_loss(losses)]

    try:
        function(examine, seconds=TIME_LIMIT)(my_train)
    except LabError as fault:
        report["fault"] = str(fault)
    return {**report, "seen": list(made.seen)}


def _number(value: Any) -> float | None:
    with suppress(TypeError, ValueError):
        return float(value.numpy() if hasattr(value, "numpy") else value)
    return None


def _copies(reports: list[Report]) -> list[tuple[Any, ...]]:
    return list(zip(*(report["weights"] for report in reports), strict=True))


def _check_files(written: list[Files]) -> Files:
    """Returns the files of the only worker that may write."""
    if not any(written):
        raise Wrong("After the first run the folder is empty, and the chief must save in it.")
    if both := written[0].keys() & written[1].keys():
        raise Wrong(
            f"Both workers wrote {Path(min(both)).name!r}: they overwrite each other's file. Only "
            "the chief saves, the worker whose strategy.cluster_resolver.task_id is 0."
        )
    return written[0] | written[1]


# A worker that is killed.


def restarted_loop(told: Callable[..., None], my_train: Any) -> None:
    """A function of (strategy, make_model, dataset, global_batch, folder) that returns the model.

    It trains one pass by SGD with momentum and saves after every second step. Worker 1 is killed
    in step KILLED_IN; both start again, and must end as a training that was never interrupted.
    """
    reports, written = _trained(my_train, restart=True, killed=[1])
    if reports:
        raise Wrong(f"It trained fewer than {KILLED_IN} steps. One pass has {STEPS}.")
    if not any(written):
        raise Wrong(
            f"Worker 1 was killed in step {KILLED_IN}, and the folder is empty. Save inside "
            "the loop, after every second step: what comes after the loop was never reached."
        )
    reports = _trained(my_train, restart=True, files=_check_files(written))[0]
    _check_same_step(dict(enumerate(reports)))
    first = next((i[0] // BATCH for _, i, training in reports[0]["seen"] if training), STEPS)
    whole, copies = whole_batches(), _copies(reports)
    if first:
        equal_copies(copies)

    def ends(kept: int, begun: int, forgets: int = -1) -> bool:
        """Whether it made so many steps of the first run, and those of the second from here on."""
        right = train(momentum(MOMENTUM, forgets), whole[:kept] + whole[begun:])[0]
        return near([each[0] for each in copies], right)

    same = near([a for a, _ in copies], [b for _, b in copies])
    told(first=first, same=same, ends=ends)


# The chief of a parameter server; any program.


def on_each_rank(program: Any, ranks: int) -> list[Any]:
    """What program(rank) returns on each rank of a cluster."""
    with Cluster(ranks) as c:
        return c.run(program, show=False)


def coordinator_loop(told: Callable[..., None], lead: Any) -> None:
    """A function of (coordinator, make_model, make_dataset, steps): (model, number of updates)."""
    fault, facts, weights = beside(lead, _led)
    if fault:
        raise Wrong(fault)
    right = train(steps=whole_batches()[:1] * 2)[0]  # two steps with the first batch
    told(**facts, is_sgd=near(weights or right, right))


def _led(lead: Any) -> Any:
    from labkit.strategies.parameter_server import ROLE_COUNTS

    with Cluster(roles=ROLE_COUNTS, variables=cpu_only) as c:
        outcome = c.start(_lead, lead, until={0}, show=False).finish(TIME_LIMIT)
    outcome.raise_errors()
    return outcome.results[0]


def _lead(rank: int, lead: Callable[..., Any]) -> tuple[str, Any, Any]:
    """On the chief: what is wrong, and what was counted; workers and the server stay in join."""
    from labkit.strategies.parameter_server import join

    try:
        seen = function(partial(_counted, join()), seconds=TIME_LIMIT)(lead)
    except LabError as fault:
        return str(fault), None, None
    return "", *seen


class Watched:
    """A coordinator whose steps are counted, the waits between them, and what counts on the server.

    Of all its variables that may be counters, those are kept that the first step has changed.
    """

    def __init__(self, coordinator: Any) -> None:
        tf = import_tensorflow()
        self.strategy, self.done = coordinator.strategy, coordinator.done
        self.models, self.counters, self.in_scope = list[Any](), list[Any](), True
        self.scheduled = self.waits = self.datasets = 0
        self.one_by_one = False
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
        first = not self.scheduled
        before = [*map(int, self.counters)] if first else []
        value = call(*given, **keywords)
        if first or self.one_by_one:
            with suppress(Exception):  # join tells what the step has raised
                value.fetch()
        if first:  # what has grown was counted in the step
            both = zip(self.counters, before, strict=True)
            self.counters = [counter for counter, was in both if int(counter) > was]
        value.fetch, self.scheduled = partial(self._wait, value.fetch), self.scheduled + 1
        return value

    def _dataset(self, call: Callable[..., Any], *given: Any, **keywords: Any) -> Any:
        self.datasets += 1
        return call(*given, **keywords)

    def _wait(self, call: Callable[..., Any], *given: Any, **keywords: Any) -> Any:
        self.waits += 0 < self.scheduled < UPDATES
        return call(*given, **keywords)


def _counted(coordinator: Any, lead: Callable[..., Any]) -> tuple[dict[str, Any], Any]:
    """What was counted, and the weights after two steps."""
    tf, watched = import_tensorflow(), Watched(coordinator)

    def batches(size: int) -> Any:
        dataset = tf.data.Dataset.from_tensor_slices(make_data()).take(size)
        return dataset.shuffle(size).repeat().batch(BATCH)

    with tf.variable_creator_scope(watched.variable):
        asked = type("Steps", (int,), {})(UPDATES)
        try:
            result = lead(coordinator, watched.make_model, partial(batches, BATCH * STEPS), asked)
        except Wrong as fault:
            if watched.in_scope:
                raise Wrong(OUTSIDE) if "merge_call" in str(fault) else fault from None
        if not watched.in_scope:
            return {"in_scope": False}, None
        at_return = int(watched.updates)
        _, counted = returned(result, watched.models, "the number of updates")
        end = time.monotonic() + DRAIN
        while not watched.done() and time.monotonic() < end:
            time.sleep(0.01)
        facts = {
            "in_scope": True, "scheduled": watched.scheduled, "at_return": at_return,
            "updates": (updates := int(watched.updates)), "counted": _number(counted),
            "datasets": watched.datasets, "waits": watched.waits,
            "on_server": counted is not asked and UPDATES in map(int, watched.counters),
        }  # fmt: skip
        if not at_return == updates == UPDATES:
            return facts, None  # the next run might not end
        watched.one_by_one = True
        result = lead(coordinator, watched.make_model, partial(batches, BATCH), 2)
        return facts, returned(result, watched.models)[0].get_weights()
