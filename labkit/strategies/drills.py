"""Fault drills: a fault is caused on purpose, live, and the strategy shows what it makes of it.

>>> labkit.strategies.drill("kill")                                       # doctest: +SKIP
>>> labkit.strategies.drill("kill", strategy="parameter_server")          # doctest: +SKIP
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from typing import Any

from labkit.arguments import whole
from labkit.cluster import Going, Outcome
from labkit.cluster.outcome import explain_deadline
from labkit.kinds import LabError, percent_text, seconds_text
from labkit.strategies import drill_programs as programs
from labkit.strategies.drill_scene import STRATEGIES, Scene
from labkit.strategies.drilled import Drill, Moment
from labkit.strategies.many_workers import explain_patience

__all__ = ["Drill", "Moment", "drill"]

FAULTS = ("kill", "hang", "slow", "restart")
STEPS, EVERY, FATAL = 60, 10, 23  # the fault comes between two checkpoints
SLOW = 0.05  # seconds that a slow worker takes more for each step
PACE = 0.01  # seconds that images take to come, so that a fault finds the workers at work
NOBODY = (-1, 0)


def drill(
    fault: str,
    strategy: str = "multi_worker",
    *,
    workers: int = 2,
    patience: float = 3.0,
    deadline: float = 60.0,
) -> Drill:
    """Cause a fault in a running training, and tell what comes of it.

    fault: "kill" (SIGKILL), "hang" (SIGSTOP), "slow" or "restart"; strategy: "multi_worker" or
    "parameter_server". The last worker is the victim. `patience`: seconds without an answer after
    which the others give up; TensorFlow's own is endless.
    """
    if fault not in FAULTS or strategy not in STRATEGIES:
        raise LabError(
            f"There is no drill({fault!r}, {strategy!r}). The faults are {', '.join(FAULTS)}, the "
            f"strategies {', '.join(STRATEGIES)}."
        )
    workers = whole("workers", workers, at_least=2)
    patience, deadline = explain_patience(patience), explain_deadline(deadline)
    if not patience < deadline:
        raise LabError(
            f"patience={patience:g} must be fewer seconds than the deadline of {deadline:g}."
        )
    return _DRILLS[fault, strategy](Scene(strategy, workers, patience, deadline))


def _together(fault: str) -> Callable[[Scene], Drill]:
    def caused(scene: Scene) -> Drill:
        hold, victim = (scene.victim, FATAL), scene.victim
        with scene.ranks() as ranks:
            going = scene.start(
                ranks, programs.together, STEPS, scene.patience, hold, {}, without=victim
            )
            going.wait_for("here it comes", rank=victim, deadline=scene.deadline)
            scene.hit(going, fault, victim)
            outcome = going.finish(deadline=scene.deadline)
        noticed = scene.heard(outcome)
        others = [rank for rank in range(scene.workers) if rank != victim]
        went_on = all(rank in outcome.results for rank in others)
        if fault == "hang":
            result = _why_noticed(scene, noticed)
        else:
            result = (
                f"A synchronous step needs every worker: after step {FATAL} there was no other, "
                'and what was learnt is lost without a checkpoint. See drill("restart").'
            )
        return scene.ended(fault, noticed, went_on, result)

    return caused


def _why_noticed(scene: Scene, noticed: float | None) -> str:
    """Which clock has told the others that one hangs."""
    who, patience = scene.names[scene.victim], seconds_text(scene.patience)
    if noticed is None or noticed > 0.9 * scene.patience:
        return (
            f"The others waited for {who} until their patience of {patience} was over; without "
            "one, an exchange waits for ever."
        )
    return (
        f"Before their patience of {patience} was over, the others missed the heartbeats of {who}, "
        "since all of it stands still. A program that hangs in a living process sends them."
    )


def _served(fault: str) -> Callable[[Scene], Drill]:
    def caused(scene: Scene) -> Drill:
        delays = dict.fromkeys(range(scene.workers), PACE)
        with scene.ranks() as ranks:
            going = scene.start(ranks, programs.served, 2 * STEPS, scene.patience, delays)
            going.wait_for("steps are done", rank=0, deadline=scene.deadline)
            scene.hit(going, fault, scene.victim)
            outcome = going.finish(deadline=scene.deadline)
        noticed = scene.heard(outcome)
        if 0 not in outcome.results:
            error = outcome.errors[0]
            return scene.ended(fault, noticed, False, str(error.exception or error.text))
        served = outcome.results[0]
        shares = _shares(served.by_worker)
        again = "none was" if not served.repeated else f"{served.repeated} had to be"
        result = (
            f"The lost worker's step went to another: {served.scheduled} steps were handed out, "
            f"and {again} done twice. {shares}. Loss {served.updates[0].loss:.2f} at the first "
            f"step, {served.updates[-1].loss:.2f} at the last."
        )
        counts = _counts(served.by_worker)
        return scene.ended(fault, noticed, True, result, repeated=served.repeated, **counts)

    return caused


def _slow_together(scene: Scene) -> Drill:
    victim = scene.victim
    with scene.ranks() as ranks:
        slow = {victim: SLOW}
        going = scene.start(ranks, programs.together, STEPS, scene.patience, NOBODY, slow)
        half = going.wait_for(f"step {STEPS // 2} is done", rank=victim, deadline=scene.deadline)
        scene.at = half.seconds
        more = f"takes {seconds_text(SLOW)} more for each step"
        scene.note(scene.at, victim, more)
        outcome = going.finish(deadline=scene.deadline)
    scene.heard(outcome)
    outcome.raise_errors()
    went_on = len(outcome.results) == scene.workers
    # The first steps are slower for other reasons.
    halves = (slice(STEPS // 4, STEPS // 2), slice(STEPS // 2, STEPS))
    before, after = (statistics.median(outcome.results[0][half]) for half in halves)
    return scene.ended(
        "slow", None, went_on,
        f"A step of worker 0 took {seconds_text(before)} before and {seconds_text(after)} after, "
        "though nothing was done to it: all go at the pace of the slowest.",
        step_before=before, step_after=after,
    )  # fmt: skip


def _slow_served(scene: Scene) -> Drill:
    delays = dict.fromkeys(range(scene.workers), PACE)
    delays[scene.workers - 1] = PACE + SLOW
    with scene.ranks() as ranks:
        scene.note(0.0, scene.victim, f"takes {seconds_text(SLOW)} more for each step")
        going = scene.start(ranks, programs.served, 2 * STEPS, scene.patience, delays)
        outcome = going.finish(deadline=scene.deadline)
    scene.heard(outcome)
    if 0 not in outcome.results:
        return scene.ended("slow", None, False, outcome.errors[0].text)
    served = outcome.results[0]
    late = [u.staleness for u in served.updates if u.worker == scene.workers - 1]
    behind = statistics.fmean(late) if late else float("nan")
    return scene.ended(
        "slow", None, True,
        f"Nobody waited for it: {_shares(served.by_worker)}. Its gradients missed {behind:.1f} "
        "updates of the others on average.",
        mean_staleness=behind, **_counts(served.by_worker),
    )  # fmt: skip


def _restart(scene: Scene) -> Drill:
    import numpy as np

    server = scene.strategy == "parameter_server"
    victim = len(scene.names) - 1 if server else scene.victim
    with tempfile.TemporaryDirectory(prefix="labkit-drill-") as folder, scene.ranks() as ranks:

        def run(name: str, faulty: bool) -> Going:
            place, fatal = f"{folder}/{name}", FATAL if faulty else 0
            if server:
                arguments: tuple[Any, ...] = (place, STEPS, EVERY, fatal)
                return scene.start(ranks, programs.served_again, *arguments)
            hold = (victim, fatal) if faulty else NOBODY
            arguments = (place, STEPS, EVERY, scene.patience, hold)
            return scene.start(ranks, programs.together_again, *arguments)

        whole_run = run("whole", faulty=False).finish(deadline=scene.deadline)
        _only(whole_run)
        going = run("broken", faulty=True)
        asked = 0 if server else victim
        going.wait_for(f"step {FATAL} ", rank=asked, deadline=scene.deadline)
        scene.hit(going, "kill", victim)
        broken = going.finish(deadline=scene.deadline)
        noticed = scene.heard(broken)
        again = run("broken", faulty=False).finish(deadline=scene.deadline)
        first, weights = _only(again)
    began = max((moment.seconds for moment in scene.moments), default=0.0)
    scene.note(began, 0, f"all are started again, and read the checkpoint after step {first}")
    scene.note(began + again.seconds, 0, f"step {STEPS} is done")
    _, expected = _only(whole_run)
    apart = max(float(np.abs(a - b).max()) for a, b in zip(expected, weights, strict=True))
    same = "exactly those" if apart == 0 else f"within {apart:.1e} of those"
    result = (
        f"Steps {first + 1} to {FATAL} were done twice, and the weights after step {STEPS} are "
        f"{same} of a training that nothing interrupted."
    )
    went_on = first > 0 and apart <= 1e-6
    return scene.ended("restart", noticed, went_on, result, began_at=first, apart=apart)


def _only(outcome: Outcome) -> tuple[int, list[Any]]:
    """What rank 0 returned; the error of a run that should have none."""
    if 0 not in outcome.results:
        outcome.raise_errors()
        raise LabError(f"The drill itself failed: {next(iter(outcome.errors.values())).text}")
    first, weights = outcome.results[0]
    return first, weights


def _shares(by_worker: dict[int, int]) -> str:
    total = max(1, sum(by_worker.values()))
    return ", ".join(
        f"worker {n} did {count} ({percent_text(count / total)})" for n, count in by_worker.items()
    )


def _counts(by_worker: dict[int, int]) -> dict[str, float]:
    return {f"steps_of_worker_{n}": count for n, count in by_worker.items()}


_DRILLS: dict[tuple[str, str], Callable[[Scene], Drill]] = {
    ("kill", "multi_worker"): _together("kill"),
    ("hang", "multi_worker"): _together("hang"),
    ("slow", "multi_worker"): _slow_together,
    ("restart", "multi_worker"): _restart,
    ("kill", "parameter_server"): _served("kill"),
    ("hang", "parameter_server"): _served("hang"),
    ("slow", "parameter_server"): _slow_served,
    ("restart", "parameter_server"): _restart,
}
