"""Fault drills: cause a fault in a running training, and record what follows.

>>> labkit.strategies.drill("kill")                                       # doctest: +SKIP
>>> labkit.strategies.drill("kill", strategy="parameter_server")          # doctest: +SKIP
"""

from __future__ import annotations

import io
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.arguments import number
from labkit.cluster import Cluster, RunHandle, RunOutcome
from labkit.hardware.devices import import_tensorflow
from labkit.kinds import Kind, LabError, measured, percent_text, seconds_text
from labkit.plain import atomic_write
from labkit.shown import ShownAsTable
from labkit.strategies.parameter_server import ROLE_COUNTS, Chief, join
from labkit.strategies.practice import CPU_ONLY, practice_job
from labkit.strategies.tf_errors import short_error
from labkit.strategies.workers import workers
from labkit.training.job import Job

if TYPE_CHECKING:
    from labkit.views.table import Table

STEPS, EVERY, FATAL = 40, 10, 23  # the fault comes between two checkpoints
SLOW = 0.05  # seconds that a slow worker takes more for each step
INPUT = 0.01  # seconds that images take to come, so that a fault finds the workers at work
HOLD = 60.0  # seconds that the victim waits for its fault
LIMIT = 60.0  # seconds for each run of a drill
GIVES_UP, TAKES = "gives up: ", "takes "


@dataclass(frozen=True)
class DrillEvent:
    """An event: seconds after the start, the process, and what happened to it."""

    seconds: float
    who: str
    what: str


@dataclass(frozen=True, repr=False)
class DrillRecord(ShownAsTable):
    """A fault that was caused on purpose, and what followed."""

    fault: str
    strategy: str
    noticed: float | None
    """Seconds from the signal until another process reported an error; None if none did."""
    went_on: bool
    """Whether the training reached its end in spite of the fault."""
    result: str
    timeline: tuple[DrillEvent, ...]
    kind: Kind

    def table(self) -> Table:
        """Returns what happened when, and the outcome."""
        from labkit.views.table import Table

        went = "Training went on." if self.went_on else "Training stopped."
        if self.fault == "restart" and self.went_on:
            went = "Training started again from its checkpoint."
        after = "" if self.noticed is None else f" Noticed after {seconds_text(self.noticed)}."
        title = f"Drill: {FAULTS[self.fault]}, {STRATEGIES[self.strategy]}"
        rows = [[f"{event.seconds:.2f} s", event.who, event.what] for event in self.timeline]
        footer = f"{went}{after} {self.result}\n{self.kind}"
        return Table(("when", "who", "what"), rows, title, footer, prose=True)


FAULTS = {
    "kill": "a process is killed",
    "hang": "a process hangs",
    "slow": "a worker becomes slow",
    "restart": "start again from a checkpoint",
}
STRATEGIES = {"multi_worker": "MultiWorkerMirrored", "parameter_server": "ParameterServer"}


def drill(fault: str, strategy: str = "multi_worker", *, timeout: float = 3.0) -> DrillRecord:
    """Cause a fault in a running training, and record what comes of it.

    fault: "kill" (SIGKILL), "hang" (SIGSTOP), "slow" or "restart"; strategy: "multi_worker" or
    "parameter_server", which has "kill" only. Worker 1 is the victim. `timeout`: seconds without
    an answer after which the others give up; TensorFlow's own is endless.
    """
    if (strategy, fault) not in DRILLS:
        raise LabError(
            f"There is no drill({fault!r}, strategy={strategy!r}). multi_worker has "
            "kill, hang, slow and restart; parameter_server has kill."
        )
    timeout = number("timeout", timeout, above=0, below=LIMIT)
    return DRILLS[strategy, fault](_Scene(fault, strategy), timeout)


class _Scene:
    """The processes of a drill, and what has happened to them."""

    def __init__(self, fault: str, strategy: str) -> None:
        self.fault, self.strategy = fault, strategy
        self.together = strategy == "multi_worker"
        self.names = ["worker 0", "worker 1"]
        if not self.together:
            self.names = ["chief", *self.names, "server"]
        self.victim = self.names.index("worker 1")
        self.events: list[DrillEvent] = []
        self.at = 0.0
        """When the signal was sent."""

    def ranks(self) -> Cluster:
        return Cluster(roles={"worker": 2} if self.together else ROLE_COUNTS, variables=CPU_ONLY)

    def start(self, ranks: Cluster, program: Callable[..., Any], *arguments: Any) -> RunHandle:
        """Start a run in which every rank may fail: none is stopped because of another.

        It is over when worker 0, or the chief, has returned or given up.
        """
        every_rank = range(len(self.names))
        return ranks.start(program, *arguments, until={0}, tolerate=every_rank, show=False)

    def signal(self, run: RunHandle) -> None:
        """Kill or stop the victim, and note when."""
        self.at = run.seconds
        if self.fault == "hang":
            self.note(self.at, self.victim, "is stopped where it is (SIGSTOP)")
            run.pause(self.victim)
        else:
            self.note(self.at, self.victim, "is killed (SIGKILL)")
            run.kill(self.victim)

    def note(self, seconds: float, rank: int, what: str) -> None:
        self.events.append(DrillEvent(seconds, self.names[rank], what))

    def reports(self, outcome: RunOutcome) -> float | None:
        """Note what the ranks wrote. Returns the seconds from the signal to the first error."""
        steps = [line for line in outcome.lines if line.text.endswith(" done")]
        slow = [line for line in outcome.lines if line.text.startswith(TAKES)]
        for line in [*steps[:1], *slow, *steps[-1:]]:
            self.note(line.seconds, line.rank, line.text)
        errors = {
            line.rank: (line.seconds, line.text)
            for line in outcome.lines
            if line.text.startswith(GIVES_UP)
        }
        for rank, error in outcome.errors.items():
            # A crash in a library leaves no time for a line.
            if rank != self.victim and error.what != "stopped":
                errors.setdefault(rank, (error.seconds, error.text))
        for rank, (seconds, text) in errors.items():
            self.note(seconds, rank, text)
        return min(errors.values())[0] - self.at if errors else None

    def record(self, noticed: float | None, went_on: bool, result: str) -> DrillRecord:
        return DrillRecord(
            fault=self.fault,
            strategy=self.strategy,
            noticed=noticed,
            went_on=went_on,
            result=result,
            timeline=tuple(sorted(dict.fromkeys(self.events), key=lambda event: event.seconds)),
            kind=measured(f"{len(self.names)} processes of this machine"),
        )


def _together(scene: _Scene, timeout: float) -> DrillRecord:
    """Kill or stop one of two workers that train in step."""
    with tempfile.TemporaryDirectory(prefix="labkit-drill-") as folder, scene.ranks() as ranks:
        outcome = _broken_run(scene, ranks, folder, timeout)
    noticed = scene.reports(outcome)
    if scene.fault == "kill":
        result = (
            f"A synchronous step needs every worker: after step {FATAL} one was missing, and "
            'without a checkpoint the training is lost. See drill("restart").'
        )
    elif noticed is None or noticed > 0.9 * timeout:
        result = (
            f"Worker 0 waited for worker 1 until its timeout of {seconds_text(timeout)} was over; "
            "without a timeout, a collective waits without end."
        )
    else:
        result = (
            f"Before its timeout of {seconds_text(timeout)} was over, worker 0 missed the "
            "heartbeats of worker 1, whose whole process has stopped. A process in which only the "
            "program hangs still sends them."
        )
    return scene.record(noticed, 0 in outcome.results, result)


def _broken_run(scene: _Scene, ranks: Cluster, folder: str, timeout: float) -> RunOutcome:
    run = scene.start(ranks, _train_together, folder, timeout, scene.victim, 0.0)
    run.wait_for(f"step {FATAL} ", scene.victim, LIMIT)
    scene.signal(run)
    return run.finish(LIMIT)


def _restart(scene: _Scene, timeout: float) -> DrillRecord:
    """Kill a worker, start all again, and compare with a training that was not interrupted."""
    import numpy as np

    with tempfile.TemporaryDirectory(prefix="labkit-drill-") as folder, scene.ranks() as ranks:
        arguments = (_train_together, f"{folder}/whole", timeout, -1, 0.0)
        whole = scene.start(ranks, *arguments).finish(LIMIT)
        noticed = scene.reports(_broken_run(scene, ranks, f"{folder}/broken", timeout))
        arguments = (_train_together, f"{folder}/broken", timeout, -1, 0.0)
        again = scene.start(ranks, *arguments).finish(LIMIT)
    (_, _, expected), (first, _, weights) = _result(whole), _result(again)
    began = max(event.seconds for event in scene.events)
    scene.note(began, 0, f"all are started again, and read the checkpoint after step {first}")
    scene.note(began + again.seconds, 0, f"step {STEPS} is done")
    apart = max(float(np.abs(a - b).max()) for a, b in zip(expected, weights, strict=True))
    same = "exactly those" if apart == 0 else f"within {apart:.1e} of those"
    result = (
        f"Steps {first + 1} to {FATAL} were done twice, and the weights after step {STEPS} are "
        f"{same} of a training that was not interrupted."
    )
    return scene.record(noticed, first > 0 and apart <= 1e-6, result)


def _slow_together(scene: _Scene, timeout: float) -> DrillRecord:
    """Make a worker slow for the second half of the steps."""
    with tempfile.TemporaryDirectory(prefix="labkit-drill-") as folder, scene.ranks() as ranks:
        outcome = scene.start(ranks, _train_together, folder, timeout, -1, SLOW).finish(LIMIT)
    scene.reports(outcome)
    _, seconds, _ = _result(outcome)
    # The first steps are slower for other reasons.
    before = statistics.median(seconds[STEPS // 4 : STEPS // 2])
    after = statistics.median(seconds[STEPS // 2 + 1 :])
    result = (
        f"A step of worker 0 took {seconds_text(before)} before and {seconds_text(after)} after, "
        "though only worker 1 was slowed down: a synchronous step takes as long as its slowest "
        "worker, the straggler."
    )
    return scene.record(None, True, result)


def _kill_with_server(scene: _Scene, timeout: float) -> DrillRecord:
    """Kill one of two workers of a parameter server."""
    with scene.ranks() as ranks:
        run = scene.start(ranks, _train_with_server)
        run.wait_for(" done", 0, LIMIT)
        scene.signal(run)
        outcome = run.finish(LIMIT)
    noticed = scene.reports(outcome)
    if 0 not in outcome.results:
        return scene.record(noticed, False, f"The chief gave up: {outcome.errors[0].text}")
    trained, total = outcome.results[0], 2 * STEPS
    shares = ", ".join(
        f"worker {n} did {count} ({percent_text(count / total)})"
        for n, count in trained.by_worker.items()
    )
    again = f"{trained.repeated} had to be" if trained.repeated else "none was"
    result = (
        f"The lost worker's step went to another: {total} steps were scheduled, and {again} "
        f"done twice. {shares}. Loss {trained.updates[0].loss:.2f} at the first step, "
        f"{trained.updates[-1].loss:.2f} at the last."
    )
    return scene.record(noticed, True, result)


def _result(outcome: RunOutcome) -> Any:
    """Returns what rank 0 returned in a run that should have had no fault."""
    if 0 not in outcome.results:
        raise LabError(f"The drill itself failed: {next(iter(outcome.errors.values())).text}")
    return outcome.results[0]


def _train_together(
    rank: int, folder: str, timeout: float, victim: int, slow: float
) -> tuple[int, list[float], list[Any]]:
    """On a worker, train with checkpoints. Returns first step, seconds of each, and weights.

    The victim waits for its fault after step FATAL; with `slow`, worker 1 sleeps so many seconds
    in each step of the second half.
    """
    job = practice_job(workers(timeout))
    times = [time.perf_counter()]

    def after_step(step: int) -> None:
        times.append(time.perf_counter())
        if step % EVERY == 0 or (step == FATAL and rank == victim):
            print(f"step {step} is done", flush=True)
        if step == FATAL and rank == victim:
            time.sleep(HOLD)
        if slow and rank == 1 and step >= STEPS // 2:
            if step == STEPS // 2:
                print(f"{TAKES}{seconds_text(slow)} more for each step", flush=True)
            time.sleep(slow)

    with _announced_errors():
        first = steps_with_checkpoints(job, Path(folder), after_step)
    seconds = [after - before for before, after in pairwise(times)]
    return first, seconds, job.weights()


def steps_with_checkpoints(job: Job, folder: Path, after_step: Callable[[int], None]) -> int:
    """Train up to step STEPS from the last checkpoint in the folder. Returns its step, or 0.

    A checkpoint holds all that the next step depends on. All workers read it, the chief writes it.
    """
    import numpy as np

    tf, file, first = import_tensorflow(), folder / "checkpoint.npz", 0
    variables = [*job.model.weights, *job.optimizer.variables()]
    if file.exists():
        with np.load(file) as saved:
            first = int(saved["step"])
            for number, variable in enumerate(variables):
                variable.assign(saved[f"value_{number}"])
    for step in range(first, STEPS):
        epoch, place = divmod(step, job.steps_per_epoch)
        job.run_steps(job.order(epoch), tf.constant(place), tf.constant(1))
        job.synchronize()
        if job.replicas.index == 0 and (step + 1) % EVERY == 0:
            values = {f"value_{n}": variable.numpy() for n, variable in enumerate(variables)}
            content = io.BytesIO()
            np.savez(content, step=step + 1, **values)
            folder.mkdir(exist_ok=True)
            atomic_write(file, content.getvalue())  # whole, whenever a process is killed
        after_step(step + 1)
    return first


def _train_with_server(rank: int) -> Any:
    """On the chief, make asynchronous steps with a parameter server."""
    chief, printed = Chief(join(), delays={0: INPUT, 1: INPUT}), 0

    def progress(done: int) -> None:
        nonlocal printed
        if done // EVERY > printed:
            printed = done // EVERY
            print(f"{done} of {2 * STEPS} steps are done", flush=True)

    with _announced_errors():
        return chief.steps(2 * STEPS, progress=progress)


@contextmanager
def _announced_errors() -> Iterator[None]:
    """Print an error at once, so that its line has the time at which it was noticed."""
    try:
        yield
    except Exception as fault:
        own, text = isinstance(fault, LabError), str(fault)
        text = text.partition(". ")[0] if own else short_error(type(fault).__name__, text)
        print(f"{GIVES_UP}{text}", flush=True)
        raise


DRILLS: dict[tuple[str, str], Callable[[_Scene, float], DrillRecord]] = {
    ("multi_worker", "kill"): _together,
    ("multi_worker", "hang"): _together,
    ("multi_worker", "slow"): _slow_together,
    ("multi_worker", "restart"): _restart,
    ("parameter_server", "kill"): _kill_with_server,
}
