"""Spans of a trace: what each is by its name, and how long some of them cover together."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class TraceSpan(NamedTuple):
    """Something that ran on one thread, from start to end, in nanoseconds or seconds."""

    start: float
    end: float
    name: str
    track: str
    """The thread, or the stream of a device."""
    kind: str
    """A word of KINDS."""


KINDS = ("step", "input", "input thread", "copy", "forward", "backward", "optimizer",
         "communication", "kernel", "launch", "other")  # fmt: skip
COMPUTE = ("forward", "backward", "optimizer", "copy", "kernel")
# The first rule that fits wins; names as torch 2.13 and TensorFlow 2.21 write them.
RULES = (
    ("step", ("ProfilerStep#",)),
    ("input", ("enumerate(DataLoader)", "IteratorGetNext", "Iterator::")),
    ("communication", ("gloo:", "nccl", "CollectiveReduce", "CollectiveGather", "NcclAllReduce")),
    ("optimizer", ("Optimizer.step#", "ResourceApply", "adam/", "sgd/", "AssignSubVariable")),
    ("backward", ("autograd::engine", "gradient_tape/", "Backprop")),
    ("copy", ("Memcpy", "memcpy", "MEMCPY", "aten::copy_", "EagerCopyTo")),
    (
        "other",
        ("c10d::", "torch::", "detach"),
    ),  # what only starts a collective, or computes nothing
    ("forward", ("aten::", "mkldnn")),
)
INHERITED = ("input", "backward", "optimizer", "communication")
# Of TensorFlow's executor: these only enclose operations, and would be drawn over them.
ENCLOSING = (
    "Executor", "Threadpool", "ThreadPool", "Eager", "KernelAndDevice", "TFE_", "FunctionRun",
    "Instantiated", "PartitionedCall", "StatefulPartitionedCall", "Memory",
)  # fmt: skip


def kind_of(name: str) -> str:
    """Returns what a span is by its name; "" for one that only encloses others.

    >>> kind_of("aten::mm"), kind_of("gradient_tape/dense/MatMul:MatMul"), kind_of("my own")
    ('forward', 'backward', 'other')
    """
    known = (kind for kind, words in RULES if any(word in name for word in words))
    if found := next(known, ""):
        return found
    if name.startswith(ENCLOSING) or name.endswith(":PartitionedCall"):
        return ""
    return "forward" if ":" in name and "::" not in name else "other"  # TensorFlow: name:type


def nested(spans: Iterable[TraceSpan]) -> list[TraceSpan]:
    """Sorted by start; what runs inside a span of INHERITED on the same thread is of its kind.

    A thread of tf.data's own prepares input while others compute.
    """
    open_spans: dict[str, list[TraceSpan]] = {}
    found = []
    for span in sorted(spans, key=lambda one: (one.start, -one.end)):
        stack = open_spans.setdefault(span.track, [])
        while stack and stack[-1].end <= span.start:
            stack.pop()
        kind = span.kind
        if span.track.startswith("tf_data"):
            kind = "input thread"
        elif kind in ("forward", "copy", "other"):
            outer = (one.kind for one in reversed(stack) if one.kind in INHERITED)
            kind = next(outer, kind)
        stack.append(span._replace(kind=kind))
        found.append(stack[-1])
    return found


def union(spans: Iterable[Sequence[float]]) -> list[tuple[float, float]]:
    """Returns the (start, end) of all times at which at least one span runs.

    >>> union([(0, 2), (1, 3), (3, 4), (6, 7)])
    [(0, 4), (6, 7)]
    """
    found: list[tuple[float, float]] = []
    for start, end, *_ in sorted((one[0], one[1]) for one in spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def covered(spans: Iterable[Sequence[float]]) -> float:
    """Returns how long at least one span runs: what overlaps counts once.

    >>> covered([(0, 2), (1, 3), (6, 7)])
    4
    """
    return sum(end - start for start, end in union(spans))


def inside(spans: Iterable[Sequence[float]], start: float, end: float) -> list[tuple[float, float]]:
    """Returns the parts of spans that lie between two times."""
    cut = ((max(one[0], start), min(one[1], end)) for one in spans)
    return [one for one in cut if one[0] < one[1]]
