"""The pictures of the lectures on collectives, drawn from runs of the programs themselves."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from labkit.collectives.trace import Trace
    from labkit.views.sketch import Diagram, Sketch

__all__ = ["PROMISES", "diagrams"]

RANKS = 4
Part = Callable[[int, int], bool]


class Promise(NamedTuple):
    """What a collective needs and what it promises, by rank and chunk, in pictures and words."""

    before: Part
    after: Part
    title: str
    says: str
    alt: str


def _all(rank: int, chunk: int) -> bool:
    return True


def _root(rank: int, chunk: int) -> bool:
    return rank == 0


def _own(rank: int, chunk: int) -> bool:
    return rank == chunk


PROMISES = {
    "broadcast": Promise(
        _root, _all, "Broadcast", "Every rank ends with what rank 0 had.",
        "Before: rank 0 holds 1, 2, 3, 4. After: all four ranks hold 1, 2, 3, 4.",
    ),
    "reduce": Promise(
        _all, _root, "Reduce", "Rank 0 ends with the sum. What the others hold then is open.",
        "Before: rank 0 holds 1 to 4, rank 1 holds 5 to 8, rank 2 holds 9 to 12, rank 3 holds 13 "
        "to 16. After: rank 0 holds the sums 28, 32, 36, 40, with contributions of all four ranks.",
    ),
    "scatter": Promise(
        _root, _own, "Scatter", "Rank 0 hands out its chunks: rank r gets chunk r.",
        "Before: rank 0 holds 1, 2, 3, 4. After: rank 0 holds 1 as chunk 0, rank 1 holds 2 as "
        "chunk 1, rank 2 holds 3 as chunk 2, rank 3 holds 4 as chunk 3.",
    ),
    "gather": Promise(
        _own, _root, "Gather", "Rank 0 collects one chunk of every rank: scatter backwards.",
        "Before: rank 0 holds 1 as chunk 0, rank 1 holds 6 as chunk 1, rank 2 holds 11 as chunk "
        "2, rank 3 holds 16 as chunk 3. After: rank 0 holds 1, 6, 11, 16.",
    ),
    "all_gather": Promise(
        _own, _all, "All-gather", "Every rank ends with everybody's chunk.",
        "Before: rank 0 holds 1 as chunk 0, rank 1 holds 6 as chunk 1, rank 2 holds 11 as chunk "
        "2, rank 3 holds 16 as chunk 3. After: all four ranks hold 1, 6, 11, 16.",
    ),
    "reduce_scatter": Promise(
        _all, _own, "Reduce-scatter", "Every rank ends with the sum of one chunk.",
        "Before: rank 0 holds 1 to 4, rank 1 holds 5 to 8, rank 2 holds 9 to 12, rank 3 holds 13 "
        "to 16. After: rank 0 holds the sum 28 as chunk 0, rank 1 holds 32 as chunk 1, rank 2 "
        "holds 36 as chunk 2, rank 3 holds 40 as chunk 3.",
    ),
    "all_to_all": Promise(
        _all, _all, "All-to-all", "Rank r sends chunk j to rank j: the table is turned over.",
        "Before: rank 0 holds 1 to 4, rank 1 holds 5 to 8, rank 2 holds 9 to 12, rank 3 holds 13 "
        "to 16. After: rank 0 holds 1, 5, 9, 13, rank 1 holds 2, 6, 10, 14, rank 2 holds 3, 7, "
        "11, 15, rank 3 holds 4, 8, 12, 16.",
    ),
    "all_reduce": Promise(
        _all, _all, "All-reduce", "Every rank ends with the sum of all.",
        "Before: rank 0 holds 1 to 4, rank 1 holds 5 to 8, rank 2 holds 9 to 12, rank 3 holds 13 "
        "to 16. After: all four ranks hold the sums 28, 32, 36, 40, each with contributions of "
        "all four ranks.",
    ),
}  # fmt: skip


def _ran(name: str, ranks: int = RANKS, size: int | None = None, **options: Any) -> Trace:
    """A run of a program of ours; `size` elements for each rank, or ready-made data."""
    import numpy as np

    from labkit.collectives import programs
    from labkit.collectives.trace import run

    inputs = None if size is None else [np.zeros(size) for _ in range(ranks)]
    how: dict[str, Any] = {"ranks": ranks} if inputs is None else {"inputs": inputs}
    return run(getattr(programs, name), **how, **options)


def _operation(name: str) -> Sketch:
    from labkit.views.collective_diagrams import operation

    trace = _ran("ring_all_reduce" if name == "all_reduce" else name)
    places = [(rank, chunk) for rank in range(RANKS) for chunk in range(RANKS)]
    promise = PROMISES[name]
    matter = ([p for p in places if promise.before(*p)], [p for p in places if promise.after(*p)])
    return operation(trace, promise.title, promise.says, matter)


def _ring_steps() -> Sketch:
    from labkit.views.collective_diagrams import steps

    trace = _ran("ring_all_reduce")
    chunks, buffers = trace.messages_sent[0], trace.bytes_sent[0] / trace.inputs[0].nbytes
    return steps(
        trace,
        "Ring all-reduce, step by step",
        "Every rank sends to its right neighbour in every step. Heavy: what a step has changed.",
        (("Reduce-scatter: partial sums travel", 0, 3), ("All-gather: finished sums travel", 4, 6)),
        (f"Every rank has sent\n{chunks} chunks, together\n{buffers:g} times its buffer.",),
    )


def _naive_bottleneck() -> Sketch:
    from labkit.views.collective_comparisons import bytes_per_rank

    return bytes_per_rank(
        [_ran(name, 8, 64) for name in ("naive_all_reduce", "ring_all_reduce")],
        "Why one rank must not add up for all",
        "Eight ranks, the same result. One buffer is what each rank wants to have summed.",
    )


def _tree_and_ring() -> Sketch:
    from labkit.views.collective_comparisons import work_by_ranks

    return work_by_ranks(
        {
            name: [_ran(name, ranks, 64) for ranks in (2, 4, 8, 16, 32, 64)]
            for name in ("tree_all_reduce", "ring_all_reduce")
        },
        "Few large messages or many small ones",
        "The tree needs few steps, and each moves everything. The ring needs many, each a chunk.",
    )


def _double_binary_tree() -> Sketch:
    from labkit.views.collective_comparisons import two_trees

    return two_trees(
        _ran("double_binary_tree_all_reduce", 8, 16, pieces=1),
        "Two trees at once",
        "Who is a leaf of one tree adds up in the other, so that all share the work.",
    )


def _two_levels() -> Sketch:
    from labkit.views.collective_comparisons import two_levels

    return two_levels(
        _ran("hierarchical_all_reduce", 8, 64, per_node=4),
        _ran("ring_all_reduce", 8, 64),
        4,
        "All-reduce in two levels",
        "Links inside a node are fast, those between nodes slow. So add up inside first.",
    )


def _buckets() -> Sketch:
    from labkit.collectives.buckets import overlap
    from labkit.views.bucket_figure import buckets_board

    layers = [(1e-3, 4e6)] * 12
    sizes = {"All at the end": float("inf"), "Every layer alone": 0.0, "Buckets of 16 MB": 16e6}
    return buckets_board(
        {
            name: overlap(layers, ranks=8, bucket=size, latency=100e-6, bandwidth=10e9)
            for name, size in sizes.items()
        }
    )


def diagrams() -> dict[str, Diagram]:
    """The pictures of this room for the folder of images."""
    from labkit.views.sketch import Diagram

    drawn = {
        f"op_{name}": Diagram("06", partial(_operation, name), f"{one.title} on 4 ranks. {one.alt}")
        for name, one in PROMISES.items()
    }
    return drawn | {
        "ring_steps": Diagram(
            "07",
            _ring_steps,
            "Ring all-reduce on 4 ranks in seven tables. In the reduce-scatter, steps 1 to 3, "
            "every rank sends one chunk to its right neighbour, which adds it; then rank 0 holds "
            "the sum 32, rank 1 holds 36, rank 2 holds 40, rank 3 holds 28. In the all-gather, "
            "steps 4 to 6, these sums travel on, until every rank holds 28, 32, 36, 40.",
        ),
        "naive_bottleneck": Diagram(
            "07",
            _naive_bottleneck,
            "What 8 ranks send and receive. With naive_all_reduce rank 0 sends 7 buffers and "
            "receives 7, every other rank 1. With ring_all_reduce every rank sends 1.75 buffers "
            "and receives 1.75.",
        ),
        "tree_and_ring": Diagram(
            "07",
            _tree_and_ring,
            "Tree and ring all-reduce on 2, 4, 8, 16, 32 and 64 ranks. Steps of the tree: 2, 4, "
            "6, 8, 10, 12; of the ring: 2, 6, 14, 30, 62, 126. The busiest rank of the tree "
            "sends 1, 2, 3, 4, 5, 6 buffers; of the ring 1, 1.50, 1.75, 1.88, 1.94, 1.97.",
        ),
        "double_binary_tree": Diagram(
            "07",
            _double_binary_tree,
            "Two binary trees over the same 8 ranks. Tree 0, for the first half of the buffer: 0 "
            "and 2 send to 1, 4 and 6 to 5, 1 and 5 to 3, 3 to 7. Tree 1, for the second half: 7 "
            "and 1 send to 0, 3 and 5 to 4, 0 and 4 to 2, 2 to 6. The leaves of one tree are "
            "inner ranks of the other.",
        ),
        "two_levels": Diagram(
            "07",
            _two_levels,
            "All-reduce on two nodes of 4 ranks in three phases. 1, reduce-scatter in a ring "
            "inside each node: 0.75 buffers on each arrow. 2, all-reduce between ranks 0 and 4, "
            "1 and 5, 2 and 6, 3 and 7: 0.25 buffers each way. 3, all-gather in a ring inside "
            "each node: 0.75 buffers on each arrow. Out of each node goes 1 buffer in all; with "
            "one flat ring over all ranks, 1.75 buffers on a single link.",
        ),
        "buckets": Diagram(
            "07",
            _buckets,
            "A backward pass of 12 layers and the all-reduce of its gradients, three schedules. "
            "All at the end: 21.8 ms. Every layer alone: 26.2 ms. Buckets of 16 MB, four layers "
            "each: 16.6 ms, for two of three buckets leave while the backward pass still runs.",
        ),
    }
