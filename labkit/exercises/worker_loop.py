"""The judge of a worker's program: run by two real workers, twice, with one folder.

The first run trains one pass and saves. The second starts from the checkpoint, as after a failure:
both workers must then hold the weights that the serial program has after two passes.
"""

from __future__ import annotations

import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labkit.cluster import Cluster
from labkit.exercises.judges import check_callable, has_blanks
from labkit.exercises.task import Unanswered, Wrong
from labkit.exercises.training_loop import (
    BATCH,
    CLOSE,
    REPLICAS,
    Models,
    Serial,
    check_images,
    check_losses,
    check_weights,
    make_data,
    returned,
)
from labkit.hardware import replicas
from labkit.hardware.devices import import_tensorflow
from labkit.kinds import LabError

__all__ = ["Fault", "call", "cpu_only", "worker_loop"]

TIME_LIMIT = 90.0  # seconds for each of the two runs
TIMEOUT = 20.0  # seconds that a worker waits in a collective for the other
LONGEST = 300  # characters of a message
LOST_A_PEER = ("Unavailable", "DeadlineExceeded", "Aborted", "Cancelled", "Internal")
cpu_only = {"CUDA_VISIBLE_DEVICES": ""}  # the question is what is computed, not how fast


@dataclass(frozen=True)
class Fault:
    """What a student's function raised in another process."""

    kind: str
    text: str
    own: bool = False
    """It is a LabError, whose sentence says what is wrong."""

    def __str__(self) -> str:
        return self.text if self.own else f"It raised {self.kind}{self.text}"


@dataclass
class Report:
    """What one worker did."""

    fault: Fault | None = None
    unanswered: bool = False
    seen: list[Any] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    weights: list[Any] = field(default_factory=list)
    losses: list[Any] = field(default_factory=list)


def worker_loop() -> Callable[[Any], None]:
    """A function of (strategy, make_model, dataset, global_batch, folder): (model, losses).

    It restores the last checkpoint of the folder if there is one, trains one pass with plain SGD,
    rate RATE, the mean loss of each global batch, and saves.
    """

    def judge(train: Any) -> None:
        check_callable(train)
        if has_blanks(train):
            raise Unanswered
        with suppress(LabError):  # TensorFlow may have been used
            replicas(REPLICAS)  # the serial program uses TensorFlow: later it is too late for them
        serial = Serial(Models(None).make_plain, *make_data())
        with (
            tempfile.TemporaryDirectory(prefix="labkit-worker-") as folder,
            Cluster(REPLICAS, environment=cpu_only) as c,
        ):
            first = _run(c, train, folder)
            shares = check_images([each for report in first for each in report.seen])
            check_weights(_copies(first), serial)
            for report in first:
                check_losses(report.losses, serial, shares)
            if not any(path.is_file() for path in Path(folder).rglob("*")):
                raise Wrong("After the first run the folder is empty: the chief must save in it.")
            _check_restart(_run(c, train, folder), serial)

    return judge


def call(train: Callable[..., Any], *arguments: Any) -> Any:
    """In a rank: what the function returns, or its Fault."""
    try:
        return train(*arguments)
    except LabError as fault:
        return Fault("LabError", str(fault), own=True)
    except (Exception, SystemExit) as fault:  # noqa: BLE001 (whatever it is, the student reads it)
        last = str(fault).strip().rpartition("\n")[2][:LONGEST]
        file = getattr(getattr(train, "__code__", None), "co_filename", None)
        frames = [f for f in traceback.extract_tb(fault.__traceback__) if f.filename == file]
        where = f" at line {frames[-1].lineno}: {frames[-1].line}" if frames else ""
        return Fault(type(fault).__name__, f"{f': {last}' if last else ''}{where}")


def _run(c: Cluster, train: Any, folder: str) -> list[Report]:
    outcome = c.start(_work, train, folder, show=False).finish(TIME_LIMIT)
    found: dict[int, Report] = outcome.results
    written = [set(report.written) for report in found.values()]
    if len(written) == REPLICAS and (both := set.intersection(*written)):
        name = Path(min(both)).name
        raise Wrong(
            f"Both workers wrote {name!r}: they overwrite each other's file. Only the chief "
            "saves, the worker whose strategy.cluster_resolver.task_id is 0."
        )
    faults = {rank: report.fault for rank, report in found.items() if report.fault}
    first = sorted(faults.items(), key=lambda item: item[1].kind.startswith(LOST_A_PEER))
    for rank, fault in first:
        waited = "DeadlineExceeded" in fault.kind or "timed out" in fault.text
        hint = (
            f"The other worker did not take part within {TIMEOUT:g} s: every worker must make "
            "every step and every reduce, also the one that saves nothing. "
            if waited
            else ""
        )
        raise Wrong(f"On worker {rank}: {hint}{fault}")
    if any(report.unanswered for report in found.values()):
        raise Unanswered
    outcome.raise_errors()
    return [found[rank] for rank in range(REPLICAS)]


def _work(rank: int, train: Callable[..., Any], folder: str) -> Report:
    """On a worker."""
    from labkit.strategies.workers import workers

    tf = import_tensorflow()
    strategy = workers(timeout=TIMEOUT).strategy()
    made, report = Models(strategy), Report()
    dataset = tf.data.Dataset.from_tensor_slices(make_data())
    _note_files(report.written, folder)
    result = call(train, strategy, made.make, dataset, BATCH, folder)
    report.seen, report.unanswered = made.seen, result is ...
    if report.unanswered:
        return report
    try:
        if not isinstance(result, Fault) or made.models:
            made.check_scope()  # TensorFlow's own sentence on this says little
        if isinstance(result, Fault):
            report.fault = result
            return report
        model, losses = returned(result, made)
        report.weights = [variable.numpy() for variable in model.trainable_variables]
        report.losses = [_number(loss) for loss in losses]
    except LabError as fault:
        report.fault = Fault("LabError", str(fault), own=True)
    return report


def _number(loss: Any) -> float | None:
    try:
        return float(loss)
    except (TypeError, ValueError):
        return None


def _note_files(written: list[str], folder: str) -> None:
    """Note which files in the folder this process writes, with TensorFlow, Keras or Python."""
    import keras

    tf = import_tensorflow()
    home = str(Path(folder).resolve())

    def note(path: Any) -> None:
        full = str(Path(str(path)).resolve())
        if full.startswith(home) and full not in written:
            written.append(full)

    def noting(method: Callable[..., Any]) -> Callable[..., Any]:
        def noted(self: Any, path: Any, *args: Any, **keywords: Any) -> Any:
            note(path)
            return method(self, path, *args, **keywords)

        return noted

    for owner, names in {
        tf.train.Checkpoint: ("save", "write"),
        keras.Model: ("save", "save_weights", "export"),
    }.items():
        for name in names:
            setattr(owner, name, noting(getattr(owner, name)))

    def opened(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"):
            note(arguments[0])

    sys.addaudithook(opened)


def _copies(reports: list[Report]) -> list[tuple[Any, ...]]:
    return list(zip(*(report.weights for report in reports), strict=True))


def _check_restart(reports: list[Report], serial: Serial) -> None:
    """After the second run the weights must be those of two passes, on both workers."""
    copies = _copies(reports)

    def far(ones: Any, others: Any) -> float:
        return max(float(abs(a - b).max()) for a, b in zip(ones, others, strict=True))

    mine = [each[0] for each in copies]
    if far(mine, [each[1] for each in copies]) > CLOSE:
        raise Wrong(
            "Started again, the workers end with different weights: one has read the checkpoint "
            "and the other has not. Every worker must restore it, not only the chief."
        )
    if far(mine, serial.run(passes=2)[0]) <= CLOSE:
        return
    if far(mine, serial.run(passes=1)[0]) <= CLOSE:
        raise Wrong(
            "Started again with the same folder, it began with new weights. Before the first "
            "step, restore the checkpoint of the folder on every worker: "
            "tf.train.latest_checkpoint(folder) is None where there is none."
        )
    raise Wrong(
        "Started again from the checkpoint, it does not end with the weights that the serial "
        "program has after two passes. Save after the last step, and restore before the first."
    )
