"""What judges of other frameworks share: the student's function on ranks of an environment.

>>> def examine(my_step):                                             # doctest: +SKIP
...     for weights in run("torch", steps, my_step, ranks=2): ...     # steps(rank, my_step)
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labkit.cluster import Cluster
from labkit.environments import find
from labkit.exercises.task import NotJudged, Wrong
from labkit.kinds import LabError

RANKS, BATCH = 2, 16
# What makes the serial program end with the same weights, and what that is in a student's.
MISTAKES: tuple[tuple[str, Any, str], ...] = (
    ("scale", RANKS, "Every update is twice as large as it must be: take the mean over the ranks, "
     "not the sum, and the learning rate without the number of ranks."),
    ("scale", BATCH // RANKS, "The loss is the sum over a rank's examples: take their mean."),
    ("same", True, "All ranks take the same examples: each needs its own share."),
    ("back", 0, "The first layer is not trained: its half needs a backward pass and a step."),
    ("keep", True, "The gradients of earlier steps are added: call zero_grad in each step."),
    ("loss", "bare", "The loss takes logits for probabilities: it needs from_logits=True."),
)  # fmt: skip

START = 180.0  # seconds for ranks to import a framework on a busy machine
TIMEOUT = 60.0  # seconds for their program


def error(logits: NDArray[Any], labels: Any, loss: str = "") -> NDArray[Any]:
    """The gradient of the mean cross-entropy by the logits; or of the wrong loss above."""
    hot = np.eye(logits.shape[1])[labels]
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    wrong: NDArray[Any] = powers / powers.sum(axis=1, keepdims=True) - hot
    if loss == "bare":  # as Keras does it
        known = logits.clip(1e-7, 1 - 1e-7)
        wrong = (known == logits) * (1 / known.sum(axis=1, keepdims=True) - hot / known)
    return wrong / len(logits)


def mistake(weights: Mapping[str, Any], serial: Callable[..., Mapping[str, Any]]) -> str:
    """The mistake with which `serial` ends with these weights, or where to look for it."""
    with np.errstate(all="ignore"):
        for name, value, says in MISTAKES:
            wrong = serial(**{name: value})
            if all(np.allclose(one, wrong[layer], atol=1e-3) for layer, one in weights.items()):
                return f" {says}"
    return " Look at the optimizer, its rate, the loss, and which examples a rank takes."


def run(environment: str, program: Callable[..., Any], *args: Any, ranks: int = 2) -> list[Any]:
    """Call program(rank, *args) on ranks of the environment; what they return, by rank.

    The program imports what it needs itself: the environment may have another version of Python.
    """
    chosen = find(environment)
    if not chosen.stamp:
        raise NotJudged(chosen.how_to_build())
    try:
        with Cluster(ranks, environment=environment, start=START) as c:
            return c.run(program, *args, timeout=TIMEOUT, show=False)
    except LabError as fault:
        text = str(fault).replace(f"{program.__name__} had not", "It had not")
        raise Wrong(text.replace("Give it more time with timeout=, or look", "Look")) from None
