"""Which strategies work here: each trains in its own processes, compared with one device.

>>> labkit.strategies()                                                # doctest: +SKIP
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from labkit.cluster import Cluster
from labkit.cluster.here import fork_client
from labkit.hardware import machine_text, replicas
from labkit.hardware.devices import DEFAULT_REDUCTION, import_tensorflow, make_strategy
from labkit.kinds import Kind, LabError, measured, seconds_text
from labkit.progress import ProgressLine
from labkit.shown import ShownAsTable
from labkit.strategies.parameter_server import ROLE_COUNTS, Chief, join
from labkit.strategies.practice import (
    BATCH,
    CPU_ONLY,
    RATE,
    SEED,
    STEPS,
    practice_batches,
    practice_job,
)
from labkit.strategies.tf_errors import explain
from labkit.strategies.workers import workers
from labkit.training.models import dense

if TYPE_CHECKING:
    from labkit.views.table import Table

SAME = 1e-6  # float32 has seven digits, and replicas add in another order
TIMEOUT = 60.0  # seconds for a row: more than ten times what it takes
ALL_REDUCE = 30.0  # seconds for one between workers
HEAD = ("strategy", "placed on", "processes", "runs", "works", "from one device", "time")

Weights = list[Any]


@dataclass(frozen=True)
class Row:
    """A strategy that was run: its difference from one device, or why it does not work."""

    strategy: str
    placed: str
    processes: int
    what: str
    difference: float | None
    """The largest difference of a weight from one device's; None where none is expected."""
    seconds: float
    """Seconds from the start of the last of its processes to the end of the last."""
    why: str
    """Why it does not work; empty when it does."""


@dataclass(frozen=True, repr=False)
class SupportTable(ShownAsTable):
    """Every strategy that was run here and now, with the installed versions."""

    rows: tuple[Row, ...]
    versions: str
    kind: Kind

    def table(self) -> Table:
        """Returns a row for each run, and why some do not work."""
        from labkit.views.table import Table

        title = (
            f"Strategies: the dense model, SGD, {STEPS} steps of {BATCH} images, in processes of "
            f"their own; {self.versions}"
        )
        rows: list[list[str]] = []
        reasons: list[str] = []
        for row in self.rows:
            works = "yes"
            if row.why:
                note = f"({len(reasons) + 1})"
                works = f"no {note}"
                reasons.append(f"{note} {row.strategy} ({row.placed}), {row.what}: {row.why}")
            difference = "–" if row.difference is None else f"{row.difference:.0e}"
            seconds = seconds_text(row.seconds).replace(" ", "\N{NO-BREAK SPACE}")
            place = [row.strategy, row.placed, str(row.processes), row.what]
            rows.append([*place, works, "0" if row.difference == 0 else difference, seconds])
        footer = (
            "Works: it ran, all workers ended with the same weights, and they are those of one "
            f"device to {SAME:.0e} (where a difference is shown). {self.kind}."
        )
        return Table(HEAD, rows, title, "\n".join([*reasons, footer]), prose=True)


@dataclass(frozen=True)
class Placement:
    """A TensorFlow strategy with the attributes that a Job needs of its replicas."""

    count: int
    made: Any
    shared_variables: bool = False
    """Whether all replicas share one copy of the weights, which is updated once for all."""
    index: ClassVar[int] = 0

    def strategy(self, reduction: str | None = None) -> Any:
        """Returns the strategy; its reduction was chosen when it was made."""
        return self.made


@dataclass(frozen=True)
class Trial:
    """A row before it has run: on every rank, `train(place())` returns the weights."""

    strategy: str
    placed: str
    what: str
    place: Callable[[], Any]
    train: Callable[[Any], Weights]
    roles: Mapping[str, int] = field(default_factory=lambda: {"worker": 1})
    serial: bool = True
    """Whether its weights should be those of one device."""


def support_table() -> SupportTable:
    """Run every strategy in fresh processes, one after the other, and compare its weights."""
    rows: list[Row] = []
    expected: Weights | None = None
    line = ProgressLine()
    try:
        for number, case in enumerate(CASES, 1):
            line.show(f"{number} of {len(CASES)}: {case.strategy}, {case.placed}, {case.what}")
            row, weights = run_case(case, expected)
            rows.append(row)
            expected = weights if expected is None else expected
            if expected is None:
                raise LabError(f"Training on one device failed: {row.why}")
    finally:
        line.erase()
        # A notebook keeps the warm process for its next cell; a script has no next cell.
        if not fork_client.in_a_kernel():
            fork_client.shutdown()
    return SupportTable(tuple(rows), _versions(), measured(machine_text()))


def run_case(
    case: Trial, expected: Weights | None, timeout: float = TIMEOUT
) -> tuple[Row, Weights | None]:
    """Returns a row of the table, and the weights that it ended with."""
    until = {0} if "ps" in case.roles else None
    with Cluster(roles=case.roles, keep_warm=True, variables=CPU_ONLY) as c:
        run = c.start(_on_rank, case.place, case.train, until=until, show=False)
        outcome = run.finish(timeout)
    why, difference, copies = explain(outcome, timeout), None, list(outcome.results.values())
    if not why:
        if case.serial:
            difference = _difference(copies[0], expected or copies[0])
        if difference is not None and not difference <= SAME:
            why = f"It ran, but ended {difference:.1e} away from the weights of one device."
        elif any(_difference(copy, copies[0]) != 0 for copy in copies):
            why = "It ran, but the workers ended with different weights."
    processes = sum(case.roles.values())
    row = Row(case.strategy, case.placed, processes, case.what, difference, outcome.seconds, why)
    return row, None if outcome.errors else copies[0]


def _on_rank(rank: int, place: Callable[[], Any], train: Callable[[Any], Weights]) -> Weights:
    return train(place())


def _difference(one: Weights, other: Weights) -> float:
    import numpy as np

    return max(float(np.abs(a - b).max()) for a, b in zip(one, other, strict=True))


def _versions() -> str:
    """Returns the installed versions, without loading TensorFlow here."""
    try:
        tensorflow = importlib.metadata.version("tensorflow")
    except importlib.metadata.PackageNotFoundError:
        tensorflow = importlib.metadata.version("tensorflow-cpu")
    return f"TensorFlow {tensorflow}, Keras {importlib.metadata.version('keras')}"


def mirrored(count: int, reduction: str) -> Placement:
    """Returns MirroredStrategy on logical CPUs."""
    return Placement(count, make_strategy(replicas(count, devices="cpu").devices, reduction))


def central_storage() -> Placement:
    """Returns CentralStorageStrategy: two replicas fetch the only copy of the weights."""
    devices = list(replicas(2, devices="cpu").devices)
    strategy = import_tensorflow().distribute.experimental.CentralStorageStrategy(
        compute_devices=devices, parameter_device=devices[0]
    )
    return Placement(2, strategy, shared_variables=True)


def parameter_server() -> Placement:
    """Returns ParameterServerStrategy, on the chief."""
    return Placement(1, join().strategy)


def one_step(placed: Any) -> Weights:
    """Train with the course's own step. Returns the weights."""
    job = practice_job(placed)
    job.steps(STEPS)
    weights: Weights = job.weights()
    return weights


def asynchronous(coordinator: Any, one_at_a_time: bool = False) -> Weights:
    """Train with a parameter server; with one worker at a time as on one device."""
    chief = Chief(coordinator)
    chief.steps(STEPS, one_at_a_time=one_at_a_time)
    return chief.weights()


def fit(placed: Any, dropout: float = 0.0) -> Weights:
    """Train an epoch with Keras' fit. Returns the weights."""
    model = _compiled(placed.strategy(), dropout)
    images, labels = practice_batches()
    model.fit(images, labels, batch_size=BATCH, shuffle=False, verbose=0)
    return [variable.numpy() for variable in model.trainable_variables]


def own_loop(placed: Any) -> Weights:
    """Train an epoch with Keras' training step in a loop, which works where `fit` does not."""
    tf = import_tensorflow()
    strategy = placed.strategy()
    model = _compiled(strategy)

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def step(batch: Any) -> None:
        strategy.run(model.train_step, args=(batch,))

    pipeline = tf.data.Dataset.from_tensor_slices(practice_batches()).batch(BATCH)
    for batch in strategy.experimental_distribute_dataset(pipeline):
        step(batch)
    return [variable.numpy() for variable in model.trainable_variables]


def _compiled(strategy: Any, dropout: float = 0.0) -> Any:
    """Returns the dense model under a strategy, compiled for Keras' own training."""
    import_tensorflow()
    import keras

    keras.utils.set_random_seed(SEED)
    with strategy.scope():
        model = dense(dropout=0.0)
        if dropout:  # Keras' own layer, which keeps its random state in a variable
            *layers, last = model.layers
            model = keras.Sequential([*layers, keras.layers.Dropout(dropout), last])
        model.compile(
            optimizer=keras.optimizers.SGD(RATE),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
    return model


SERVED = "chief, 2 workers, 1 server"
IN_TURN = partial(asynchronous, one_at_a_time=True)
DROPOUT = partial(fit, dropout=0.2)
# The first row is the one that all others are compared with.
# fmt: off
CASES = (
    Trial("one device", "1 logical CPU", "one step", partial(replicas, 1, "cpu"), one_step),
    *(
        Trial("Mirrored", f"{n} replicas, {how}", "one step", partial(mirrored, n, how), one_step)
        for n, how in (
            (2, "reduction to one device"), (2, "hierarchical copy"), (4, DEFAULT_REDUCTION),
            (2, "nccl"),
        )
    ),
    Trial("Mirrored", "2 replicas", "model.fit", partial(mirrored, 2, DEFAULT_REDUCTION), fit),
    Trial("CentralStorage", "2 replicas", "one step", central_storage, one_step),
    Trial("CentralStorage", "2 replicas", "model.fit", central_storage, fit),
    Trial("CentralStorage", "2 replicas, Dropout", "model.fit", central_storage, DROPOUT,
         serial=False),
    *(
        Trial("MultiWorkerMirrored", f"{n} workers", what, partial(workers, ALL_REDUCE), train,
             {"worker": n})
        for n, what, train in (
            (2, "one step", one_step), (3, "one step", one_step),
            (2, "model.train_step", own_loop), (2, "model.fit", fit),
        )
    ),
    Trial("ParameterServer", f"{SERVED}, in turn", "one step", join, IN_TURN, ROLE_COUNTS),
    Trial("ParameterServer", f"{SERVED}, asynchronous", "one step", join, asynchronous, ROLE_COUNTS,
         serial=False),
    Trial("ParameterServer", SERVED, "model.fit", parameter_server, fit, ROLE_COUNTS),
)
# fmt: on
