"""Why a strategy did not work, in a sentence made from what TensorFlow or Keras really said."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from labkit.kinds import seconds_text

if TYPE_CHECKING:
    from labkit.cluster import Outcome

__all__ = ["FailedError", "plainly", "reason", "why"]

_LONGEST = 140  # characters of a message
# Colours, and names and attributes of nodes, which change from run to run.
_NOISE = (
    r"\x1b\[[0-9;]*m|\{\{function_node .*?\}\} ?| used by \{\{node .*?\}\}| with these attrs: .*"
)

# What is known of a message, by words that stand in it.
_KNOWN = (
    (
        ("No OpKernel", "NcclAllReduce"),
        "NCCL adds up gradients between GPUs, and TensorFlow has no such operation for CPUs.",
    ),
    (
        ("PerReplica", "unsupported type"),
        "Before it trains, Keras averages the first batch over the replicas to learn its shape, "
        "and across processes TensorFlow cannot average a pair of images and labels. A loop of "
        "your own around strategy.run(model.train_step, ...) works.",
    ),
    (
        ("AggregatingVariable", "aggregation method"),
        "Keras' Dropout writes its random state on every replica, and of a variable that all "
        "replicas share there is only one to write to.",
    ),
    (
        ("ClusterCoordinator.create_per_worker_dataset",),
        "With parameter servers each worker needs a data set of its own, made where it is; Keras' "
        "fit makes one for all.",
    ),
    (
        ("unshardable source dataset",),
        "The images do not come from files, so there are no files to share out.",
    ),
    (
        ("Could not apply FILE based sharding",),
        "There are fewer files than workers, and each worker needs one at least.",
    ),
)


def reason(kind: str, text: str) -> str:
    r"""The sentence for an exception of this kind with this text.

    >>> reason("ValueError", "No such thing.\n  more lines")
    'ValueError: No such thing.'
    """
    plain = re.sub(_NOISE, "", text)
    plain = re.sub(r"\{\n.*?\n\}", "{…}", plain, flags=re.DOTALL)  # whole tensors
    told = f"{kind}: {_short(plain)}"
    for words, sentence in _KNOWN:
        if all(word in plain for word in words):
            return f"{sentence} ({told.removesuffix('.')})"
    return told


class FailedError(Exception):
    """What a rank says of an exception: its kind and its text, without the library that made it."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(kind, text)
        self.kind, self.text = kind, text


def plainly(rank: int, program: Callable[..., Any], *arguments: Any) -> Any:
    """On a rank: the program, whose exceptions can be read where no TensorFlow is loaded.

    >>> c.start(plainly, program, 1, 2)                       # doctest: +SKIP
    """
    try:
        return program(rank, *arguments)
    except Exception as fault:  # noqa: BLE001 (whatever it is, the table shall tell it)
        raise FailedError(type(fault).__name__, str(fault)) from None


def why(outcome: Outcome, deadline: float) -> str:
    """The first error of a run of `plainly`, in a sentence."""
    errors = sorted(outcome.errors.values(), key=lambda error: error.seconds)
    raised = [error.exception for error in errors if isinstance(error.exception, FailedError)]
    if raised:
        return reason(raised[0].kind, raised[0].text)
    if any(error.what == "hung" for error in errors):
        return f"It had not ended after {seconds_text(deadline)}, and was stopped."
    return errors[0].text


def _short(text: str) -> str:
    """The first line that says something, cut where it gets too long."""
    lines = [" ".join(line.split()) for line in text.splitlines()]
    # Keras begins with the layer, and the fault comes below it.
    lines = [line for line in lines if line and not line.startswith("Exception encountered")]
    first = lines[0] if lines else "no message"
    sentence = re.match(r".*?[.!?](?=\s|$)", first)
    first = sentence.group() if sentence else first
    return first if len(first) <= _LONGEST else first[: _LONGEST - 1].rstrip() + "…"
