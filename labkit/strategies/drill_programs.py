"""The programs that run in the ranks of a fault drill. They print what they are about to do."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from labkit.hardware.devices import import_tensorflow
from labkit.kinds import LabError
from labkit.strategies import checkpoints
from labkit.strategies.cases import RATE, STEPS, practice_job
from labkit.strategies.many_workers import workers
from labkit.strategies.parameter_server import join
from labkit.strategies.reasons import reason
from labkit.strategies.served import Served
from labkit.strategies.serving import Chief

__all__ = ["served", "served_again", "together", "together_again"]

_HELD = 60.0  # seconds that a victim waits for what will be done to it
SAY = 10


def together(
    rank: int, steps: int, patience: float, hold: tuple[int, int], slow: Mapping[int, float]
) -> list[float]:
    """Synchronous steps on several workers; returns the seconds of each.

    `hold` is a rank and a step after which it does nothing but wait for its fault. `slow` are
    seconds by rank, spent before each step of the second half.
    """
    tf = import_tensorflow()
    job = practice_job(workers(patience))
    seconds = []
    with _told():
        for step in range(steps):
            began = time.perf_counter()
            if step >= steps // 2:
                time.sleep(slow.get(rank, 0.0))
            epoch, place = divmod(step, STEPS)
            job.run_steps(job.order(epoch), tf.constant(place), tf.constant(1))
            job.synchronize()
            seconds.append(time.perf_counter() - began)
            _step_done(rank, step + 1, hold)
    return seconds


def together_again(
    rank: int, folder: str, steps: int, every: int, patience: float, hold: tuple[int, int]
) -> tuple[int, list[Any]]:
    """The same with checkpoints; the step that it began from, and the weights at its end."""
    job = practice_job(workers(patience))

    def after(step: int) -> None:
        _step_done(rank, step, hold)

    with _told():
        done = checkpoints.train(job, folder, steps=steps, every=every, after_step=after)
    return done.first, job.weights()


def served(rank: int, steps: int, patience: float, delays: Mapping[int, float]) -> Served:
    """Asynchronous steps with a parameter server."""
    chief = Chief(join(), patience=patience, delays=delays, say_every=SAY)
    with _told():
        chief.steps(steps)
    return chief.record()


def served_again(
    rank: int, folder: str, steps: int, every: int, hold: int
) -> tuple[int, list[Any]]:
    """Steps one at a time with a parameter server and checkpoints; after `hold`, it only asks."""
    chief = Chief(join(), learning_rate=RATE, one_at_a_time=True)
    first = chief.restore(folder)

    def after(step: int) -> None:
        if step % every == 0:
            chief.save(folder)
        _say(step)
        if step == hold:
            print(f"step {step} is done", flush=True)
            until = time.monotonic() + _HELD
            while time.monotonic() < until:
                chief.done()
                time.sleep(0.01)

    with _told():
        chief.steps(steps - first, after_step=after)
    return first, chief.weights()


def _step_done(rank: int, step: int, hold: tuple[int, int]) -> None:
    _say(step)
    if (rank, step) == hold:
        print(f"step {step} is done, and here it comes", flush=True)
        time.sleep(_HELD)


def _say(step: int) -> None:
    if step % SAY == 0:
        print(f"step {step} is done", flush=True)


@contextmanager
def _told() -> Iterator[None]:
    """What goes wrong in here is said at once: the line has the time at which it was noticed."""
    try:
        yield
    except Exception as fault:
        print(f"gives up: {_words(fault)}", flush=True)
        raise


def _words(fault: Exception) -> str:
    """What TensorFlow says of the fault itself, without where in the graph it was."""
    if isinstance(fault, LabError):
        return str(fault).partition(". ")[0]
    lines = [
        line
        for line in str(fault).splitlines()
        if line and not line.startswith(("Graph execution error", "Detected at node", " ", "\t"))
    ]
    return reason(type(fault).__name__, lines[0] if lines else str(fault))
