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
from labkit.exercises.judges.answers import beside
from labkit.exercises.task import NotJudged, Wrong
from labkit.kinds import LabError

RANKS, BATCH = 2, 16
# What makes the serial program end with the same weights, and what that is in a student's.
MISTAKES: tuple[tuple[str, Any, str], ...] = (
    ("scale", RANKS, "Every update is twice as large as it must be. Take the mean over the ranks, "
     "not the sum, and the learning rate without the number of ranks."),
    ("scale", 1 / RANKS, "Every update is half as large as it must be: the mean over the ranks is "
     "taken already, so do not divide by their number."),
    ("scale", BATCH // RANKS, "The loss is the sum over a rank's examples. Take their mean."),
    ("scale", BATCH, "The loss is the sum over the examples. Take their mean."),
    ("scale", -1, "The weights went up the gradient. An optimizer subtracts for you."),
    ("scale", 0, "The weights are those of the start. No update has reached them. Is there a step "
     "after each backward pass, of the parameters that the model then has?"),
    ("keep", 0.9, "It has a momentum of 0.9, and the task is plain SGD."),
    ("same", True, "All ranks take the same examples, and each needs its own share."),
    ("back", 0, "The first layer is not trained. Its half needs a backward pass and a step."),
    ("front", 0, "The second layer is not trained. Its half also needs a step."),
    ("keep", True, "The gradients of earlier steps are added. Call zero_grad in each step."),
    ("loss", "bare", "The loss takes logits for probabilities, so it needs from_logits=True."),
    ("loss", "twice", "cross_entropy takes logits, with no softmax before it."),
)  # fmt: skip

START = 180.0  # seconds for ranks to import a framework on a busy machine
TIMEOUT = 20.0  # seconds for their program, which takes one or two


def softmax(logits: NDArray[Any]) -> NDArray[Any]:
    """Returns the softmax of each row."""
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares: NDArray[Any] = powers / powers.sum(axis=1, keepdims=True)
    return shares


def error(logits: NDArray[Any], labels: Any, loss: str = "") -> NDArray[Any]:
    """The gradient of the mean cross-entropy by the logits; or of the wrong loss above."""
    hot = np.eye(logits.shape[1])[labels]
    wrong: NDArray[Any] = softmax(logits) - hot
    if loss == "twice":
        first = wrong + hot
        wrong = softmax(first) - hot
        wrong = first * (wrong - (wrong * first).sum(axis=1, keepdims=True))
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
    if not chosen.stamp or chosen.needs_this_python:
        raise NotJudged(chosen.how_to_build())
    answer = next((one for one in args if hasattr(one, "_beside")), None)
    return list(beside(answer, _on_ranks, environment, program, args, ranks))


def _on_ranks(
    _: Any, environment: str, program: Callable[..., Any], args: tuple[Any, ...], ranks: int
) -> list[Any]:
    given = [getattr(one, "value", one) for one in args]  # a function, as its source may be sent
    try:
        with Cluster(ranks, environment=environment, start=START) as c:
            return c.run(program, *given, timeout=TIMEOUT, show=False)
    except LabError as fault:
        text = str(fault).replace(f"{program.__name__} had not", "It had not")
        raise Wrong(text.replace("Give it more time with timeout=, or look", "Look")) from None
