"""The judge of a training loop that resumes: its process is killed, and it must continue.

The program runs in a process of its own, once without a failure, once killed (SIGKILL) in a step
that is drawn at random, and once with a checkpoint whose writing is cut off in the middle.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from labkit.cluster import Cluster
from labkit.cluster.run import Outcome
from labkit.exercises.judges import check_callable, has_blanks
from labkit.exercises.task import Unanswered, Wrong

__all__ = ["resuming_loop"]

STEPS, EVERY, SIZE = 40, 6, 1000  # the last checkpoint is not the end, so the end is computed
CUT = 4096  # bytes: a checkpoint of SIZE numbers is longer
TIME_LIMIT = 30.0


def gradient(w: Any, step: int) -> Any:
    """Of a quadratic whose minimum is elsewhere in every step."""
    import numpy as np

    return w - np.cos(np.arange(SIZE) + step)


def serial() -> Any:
    """The weights after all steps without a failure."""
    w: Any = 0.0
    v: Any = 0.0
    for step in range(STEPS):
        v = 0.9 * v + gradient(w, step)
        w = w - 0.1 * v
    return w


def resuming_loop() -> Callable[[Any], None]:
    """A function of (w, gradient, steps, every, path) that returns the weights.

    SGD with momentum 0.9 and rate 0.1; a checkpoint after each `every` steps.
    """

    def judge(my_train: Any) -> None:
        check_callable(my_train)
        if has_blanks(my_train):
            raise Unanswered
        at = random.randrange(2 * EVERY, STEPS - 1)
        with tempfile.TemporaryDirectory(prefix="labkit-resume-") as home, Cluster(1) as c:

            def run(name: str, **failure: int) -> tuple[Outcome, list[int]]:
                log = Path(home, f"{name}.steps")
                log.write_text("")
                path = str(Path(home, name))
                started = c.start(_work, my_train, path, str(log), failure, show=False)
                return started.finish(TIME_LIMIT), [int(one) for one in log.read_text().split()]

            outcome, _ = run("whole")
            _compare(outcome, "Without a failure", "Do all steps as the question says.")
            outcome, _ = run("killed", kill=at)
            if 0 in outcome.results:
                raise Wrong(f"It did not call gradient(w, {at}): call it once in each step.")
            outcome, steps = run("killed")
            saved, when = at - at % EVERY, f"Killed in step {at} and started again"
            if steps and steps[0] < saved:
                raise Wrong(
                    f"{when}, it began with step {steps[0]}; the last checkpoint was written "
                    f"after {saved} steps. Read it before the first step, and begin with the "
                    "number of steps that is saved in it."
                )
            _compare(outcome, when, "Save all that the next step needs: weights, velocity, step.")
            run("cut", cut=2 * EVERY + at % EVERY)  # a checkpoint is written after it
            outcome, _ = run("cut")
            _compare(
                outcome,
                "The process ended in the middle of writing a checkpoint. Started again",
                "Until a checkpoint is complete, the one before it must stay: write another "
                "file, then os.replace(new, path).",
            )

    return judge


def _compare(outcome: Outcome, when: str, advice: str) -> None:
    """The weights must be those of the serial program."""
    import numpy as np

    if outcome.errors:
        text = next(iter(outcome.errors.values())).text.replace("Rank 0", "the program")
        raise Wrong(f"{when}, {text} {advice}")
    apart = float(np.abs(np.asarray(outcome.results[0]) - serial()).max())
    if not apart <= 1e-9:
        raise Wrong(f"{when}, its weights differ by {apart:.1e} from the right ones. {advice}")


def _work(
    rank: int, my_train: Callable[..., Any], path: str, log: str, failure: dict[str, int]
) -> Any:
    """In the process of its own."""
    import numpy as np

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def counted(w: Any, step: int) -> Any:
        with Path(log).open("a", encoding="utf-8") as file:
            file.write(f"{int(step)}\n")
        if step == failure.get("kill"):
            os.kill(os.getpid(), signal.SIGKILL)
        if step == failure.get("cut"):  # from now on no file can become longer
            resource.setrlimit(resource.RLIMIT_FSIZE, (CUT, hard))
        return gradient(w, step)

    try:
        return my_train(np.zeros(SIZE), counted, STEPS, EVERY, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
