"""The published pipeline schedules: for one rank, which piece of work comes after which.

A piece is ("F", m), the forward pass of micro-batch m through the rank's stage, ("B", m), its
backward pass, or ("W", m), the gradient of the weights, where B computes that of the input alone.
A rank with several chunks of the model names the chunk: ("F", m, chunk).

>>> list(one_f_one_b(rank=2, stages=4, micro_batches=3))
[('F', 0), ('F', 1), ('B', 0), ('F', 2), ('B', 1), ('B', 2)]
"""

from collections.abc import Iterator

from labkit.arguments import one_of, whole
from labkit.kinds import LabError
from labkit.pipelines.rows import Piece
from labkit.pipelines.timeline import Schedule


def naive(rank: int, stages: int, micro_batches: int) -> Iterator[Piece]:
    """One micro-batch after the other goes forward and back: model parallelism, no pipeline."""
    for m in range(micro_batches):
        yield "F", m
        yield "B", m


def gpipe(rank: int, stages: int, micro_batches: int) -> Iterator[Piece]:
    """All forward passes, then all backward passes (Huang et al. 2019)."""
    for m in range(micro_batches):
        yield "F", m
    for m in range(micro_batches):
        yield "B", m


def one_f_one_b(rank: int, stages: int, micro_batches: int) -> Iterator[Piece]:
    """As few forward passes as the later stages need, then one forward, one backward.

    PipeDream-Flush, the schedule of Megatron-LM (Narayanan et al. 2021, section 2.2.1).
    """
    ahead = stages - 1 - rank
    for m in range(min(ahead, micro_batches)):
        yield "F", m
    for m in range(micro_batches):
        if m + ahead < micro_batches:
            yield "F", m + ahead
        yield "B", m


def interleaved(rank: int, stages: int, micro_batches: int, chunks: int) -> Iterator[Piece]:
    """1F1B with several small chunks of the model on each rank: rank 0 has layers at two places.

    Micro-batches go in groups of `stages` through one chunk after the other (section 2.2.2), or
    where their number is no multiple of it in fewer and larger groups, as PyTorch does it.
    """
    group = micro_batches // max(1, micro_batches // stages)
    turns = [
        (m, chunk)
        for first in range(0, micro_batches, group)
        for chunk in range(chunks)
        for m in range(first, first + group)
    ]
    ahead = 2 * (stages - 1 - rank) + (chunks - 1) * group
    for m, chunk in turns[:ahead]:
        yield "F", m, chunk
    for number, (m, chunk) in enumerate(turns):
        if number + ahead < len(turns):
            yield "F", *turns[number + ahead]
        yield "B", m, chunks - 1 - chunk


def zero_bubble(micro_batches: int, ahead: int, delay: int) -> Iterator[Piece]:
    """1F1B with `ahead` forward passes first, and each W `delay` micro-batches after its B."""
    for m in range(min(ahead, micro_batches)):
        yield "F", m
    for m in range(micro_batches):
        if m + ahead < micro_batches:
            yield "F", m + ahead
        yield "B", m
        if m >= delay:
            yield "W", m - delay
    for m in range(max(micro_batches - delay, 0), micro_batches):
        yield "W", m


def zb_h1(rank: int, stages: int, micro_batches: int) -> Iterator[Piece]:
    """ZB-H1: W fills a part of the bubble, in the memory of 1F1B (Qi et al. 2023, section 2.1)."""
    return zero_bubble(micro_batches, ahead=stages - 1 - rank, delay=rank)


def zb_h2(rank: int, stages: int, micro_batches: int) -> Iterator[Piece]:
    """ZB-H2: twice the memory, and no bubble where F, B and W are equally long (section 2.2)."""
    return zero_bubble(micro_batches, ahead=2 * (stages - 1 - rank), delay=2 * rank)


MOST_PIECES = 200_000  # of a kind: a second or two to check
SCHEDULES = {"naive": naive, "gpipe": gpipe, "1f1b": one_f_one_b, "zb-h1": zb_h1, "zb-h2": zb_h2}


def schedule(name: str, *, stages: int, micro_batches: int, chunks: int | None = None) -> Schedule:
    """One of the published schedules; `chunks` of the model on each rank are for "interleaved": 2.

    >>> schedule("gpipe", stages=2, micro_batches=2).rows[0]
    [('F', 0), ('F', 1), ('B', 0), ('B', 1)]
    """
    one_of("schedule", name, [*SCHEDULES, "interleaved"])
    p, m = whole("stages", stages, at_least=1), whole("micro_batches", micro_batches, at_least=1)
    v = whole("chunks", (1 + (name == "interleaved")) if chunks is None else chunks, at_least=1)
    if p * m * v > MOST_PIECES:
        text = f"{p:,} stages, {m:,} micro-batches and {v:,} chunks are more than {MOST_PIECES:,}"
        raise LabError(f"{text} forward pieces. Take fewer: bubbles depend on their ratios.")
    if name != "interleaved":
        if v > 1:
            raise LabError(f"{name} has one chunk a rank, got {v}: take schedule('interleaved').")
        least = {"zb-h1": p, "zb-h2": 2 * p - 1}.get(name, 1)
        note = f"{name} fills its bubble with {least} micro-batches or more." if m < least else ""
        return Schedule([[*SCHEDULES[name](rank, p, m)] for rank in range(p)], name, note)
    if m % max(1, m // p):
        raise LabError(
            f"The interleaved schedule sends micro-batches in {m // p} equal groups of {p} or "
            f"more, got micro_batches={m}. Take {m - m % p} or another multiple of {p}."
        )
    return Schedule([[*interleaved(rank, p, m, v)] for rank in range(p)], f"{name}, {v} chunks")
