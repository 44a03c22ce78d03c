r"""What TensorFlow or Keras reported, in one short sentence, and what it means if that is known.

>>> short_error("ValueError", "No such thing.\n  more lines")
'ValueError: No such thing.'
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from labkit.cluster import Outcome
from labkit.kinds import seconds_text

__all__ = ["PlainError", "call", "explain", "short_error"]

LONGEST = 140  # characters of a message
# Colours, and names and attributes of nodes, which change from run to run.
NOISE = (
    r"\x1b\[[0-9;]*m|\{\{function_node .*?\}\} ?| used by \{\{node .*?\}\}| with these attrs: .*"
)
# Keras begins with the layer and TensorFlow with the node: the fault comes below.
HEADINGS = ("Exception encountered", "Graph execution error", "Detected at node")

# The meaning of a message in which all of these words stand.
KNOWN = (
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
    (("unshardable source dataset",), "The images do not come from files that could be sharded."),
    (
        ("Could not apply FILE based sharding",),
        "There are fewer files than workers, and each worker needs one at least.",
    ),
)


class PlainError(Exception):
    """Kind and text of an exception, without the library that made it."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(kind, text)
        self.kind, self.text = kind, text


def call(rank: int, program: Callable[..., Any], *arguments: Any) -> Any:
    """On a rank: program(rank, *arguments), whose errors can be read without TensorFlow.

    >>> c.start(call, program, 1, 2)                          # doctest: +SKIP
    """
    try:
        return program(rank, *arguments)
    except Exception as fault:  # noqa: BLE001 (whatever it is, the table shows it)
        raise PlainError(type(fault).__name__, str(fault)) from None


def explain(outcome: Outcome, timeout: float) -> str:
    """The first error of a run of `call`, in a sentence; "" if there is none."""
    errors = sorted(outcome.errors.values(), key=lambda error: error.seconds)
    for error in errors:
        if isinstance(error.exception, PlainError):
            return short_error(error.exception.kind, error.exception.text)
    if any(error.what == "hung" for error in errors):
        return f"It had not ended after {seconds_text(timeout)}, and was stopped."
    return errors[0].text if errors else ""


def short_error(kind: str, text: str) -> str:
    """The first sentence of a message that says something, after its meaning."""
    text = re.sub(NOISE, "", text)
    text = re.sub(r"\{\n.*?\n\}", "{…}", text, flags=re.DOTALL)  # whole tensors
    lines = [line for line in text.splitlines() if not line.startswith((*HEADINGS, " ", "\t"))]
    first = next((" ".join(line.split()) for line in lines if line.strip()), "no message")
    sentence = re.match(r".*?[.!?](?=\s|$)", first)
    first = sentence.group() if sentence else first
    if len(first) > LONGEST:
        first = first[: LONGEST - 1].rstrip() + "…"
    for words, meaning in KNOWN:
        if all(word in text for word in words):
            return f"{meaning} ({kind}: {first.removesuffix('.')})"
    return f"{kind}: {first}"
