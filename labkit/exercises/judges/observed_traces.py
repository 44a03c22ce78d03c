"""How often TensorFlow runs the Python of a step that an answer has compiled, observed, not judged.

`labkit grade` does this in the process of the answer, which knows no truth.
"""

from typing import Any

import numpy as np

from labkit.exercises.judges.answers import function
from labkit.exercises.task import Wrong
from labkit.hardware.devices import import_tensorflow

CALLS = 12  # of the step; each with another length and another rate
SECONDS = 60.0


def calls() -> list[tuple[Any, float]]:
    """An array and a rate for each call."""
    rng = np.random.default_rng(38)
    sizes = [(4, 3 + 5 * n) for n in range(CALLS)]
    return [(rng.standard_normal(s).astype("float32"), 1 / (1 + n)) for n, s in enumerate(sizes)]


def watch_traces(answer: Any) -> dict[str, Any]:
    """How often the step ran eagerly and in a graph, and what it returned."""
    found: dict[str, Any] = {}
    function(lambda called: found.update(_watched(called)), SECONDS)(answer)
    return found


def _watched(called: Any) -> dict[str, Any]:
    tf = import_tensorflow()
    runs = {"graph": 0, "eager": 0}

    def step(x: Any, rate: Any) -> Any:
        runs["eager" if tf.executing_eagerly() else "graph"] += 1
        return rate * tf.reduce_mean(tf.square(x), axis=1)

    compiled = called(step)
    if not callable(compiled):
        raise Wrong(f"It returned {type(compiled).__name__}: return a function.")
    results = [np.asarray(compiled(tf.constant(x), rate)).tolist() for x, rate in calls()]
    return {**runs, "results": results}
