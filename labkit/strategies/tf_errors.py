r"""An error of TensorFlow or Keras as a short sentence, with its meaning where that is known.

>>> short_error("ValueError", "No such thing.\n  more lines")
'ValueError: No such thing.'
"""

import re

from labkit.cluster import RunOutcome
from labkit.cluster.ranks.failures import lines_of_message
from labkit.kinds import seconds_text

LONGEST = 140  # characters of a message

# The meaning of a message in which all of these words stand.
KNOWN = (
    (
        ("No OpKernel", "NcclAllReduce"),
        "NCCL adds up gradients between GPUs, and TensorFlow has no such operation for CPUs.",
    ),
    (
        ("PerReplica", "unsupported type"),
        "Before it trains, Keras averages the first batch over the replicas to learn its shape, "
        "and TensorFlow cannot average a pair of images and labels across processes. Your own "
        "loop around strategy.run(model.train_step, ...) works.",
    ),
    (
        ("AggregatingVariable", "aggregation method"),
        "Keras' Dropout writes its random state on every replica, but all replicas share one "
        "copy of this variable.",
    ),
    (
        ("ClusterCoordinator.create_per_worker_dataset",),
        "With parameter servers each worker needs a separate data set, but Keras' fit makes one "
        "for all workers.",
    ),
    (("unshardable source dataset",), "The images do not come from files that could be sharded."),
    (
        ("Could not apply FILE based sharding",),
        "There are fewer files than workers, and each worker needs at least one.",
    ),
)


def explain(outcome: RunOutcome, timeout: float) -> str:
    """Returns the first error of a run in a sentence, or ""."""
    errors = sorted(outcome.errors.values(), key=lambda error: error.seconds)
    for error in errors:
        if error.kind:
            return short_error(error.kind, error.message)
    if any(error.what == "hung" for error in errors):
        return f"It had not ended after {seconds_text(timeout)}, and was stopped."
    return errors[0].text if errors else ""


def short_error(kind: str, text: str) -> str:
    """Returns the first sentence of a message, after its meaning where that is known."""
    first = next(iter(lines_of_message(text)), "no message")
    sentence = re.match(r".*?[.!?](?=\s|$)", first)
    first = sentence.group() if sentence else first
    if len(first) > LONGEST:
        first = first[: LONGEST - 1].rstrip() + "…"
    for words, meaning in KNOWN:
        if all(word in text for word in words):
            return f"{meaning} ({kind}: {first.removesuffix('.')})"
    return f"{kind}: {first}"
