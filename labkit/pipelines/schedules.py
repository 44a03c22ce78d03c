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
from labkit.pipelines.rows import Piece, Rows, StagePath
from labkit.pipelines.timeline import Schedule
from labkit.pipelines.zero_bubble import dualpipe_v, v_half, v_min, v_path, with_weights, zb_v


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


def zb_h2_short(stages: int, micro_batches: int) -> Rows:
    """ZB-H2 of too few micro-batches to fill it: each W where its rank would wait."""
    rows: Rows = [[(*piece, 0) for piece in zb_h2(rank, stages, micro_batches) if piece[0] != "W"]
                  for rank in range(stages)]  # fmt: skip
    path = tuple((rank, 0) for rank in range(stages))
    return [[piece[:2] for piece in row] for row in with_weights(rows, path, 2 * stages - 1)]


MOST_PIECES = 200_000  # of a kind: a second or two to check
SCHEDULES = {"naive": naive, "gpipe": gpipe, "1f1b": one_f_one_b, "zb-h1": zb_h1, "zb-h2": zb_h2}
ON_A_V = {"zb-v": zb_v, "v-half": v_half, "v-min": v_min, "dualpipe-v": dualpipe_v}


def schedule(name: str, *, stages: int, micro_batches: int, chunks: int | None = None) -> Schedule:
    """One of the published schedules; `chunks` of the model on each rank are for "interleaved": 2.

    "zb-v", "v-half", "v-min" and "dualpipe-v" have two chunks on each of `stages` ranks, on a V.

    >>> schedule("gpipe", stages=2, micro_batches=2).rows[0]
    [('F', 0), ('F', 1), ('B', 0), ('B', 1)]
    """
    one_of("schedule", name, [*SCHEDULES, "interleaved", *ON_A_V])
    p, m = whole("stages", stages, at_least=1), whole("micro_batches", micro_batches, at_least=1)
    usual = 1 + (name not in SCHEDULES)
    v = whole("chunks", usual if chunks is None else chunks, at_least=1)
    if p * m * v > MOST_PIECES:
        text = f"{p:,} stages, {m:,} micro-batches and {v:,} chunks are more than {MOST_PIECES:,}"
        raise LabError(f"{text} forward pieces. Take fewer: bubbles depend on their ratios.")
    if name != "interleaved" and v != usual:
        many = "one chunk" if usual == 1 else "two chunks"
        raise LabError(f"{name} has {many} a rank, got {v}: take schedule('interleaved').")
    if name == "interleaved":
        if m % max(1, m // p):
            raise LabError(
                f"The interleaved schedule sends micro-batches in {m // p} equal groups of {p} or "
                f"more, got micro_batches={m}. Take {m - m % p} or another multiple of {p}."
            )
        return Schedule([[*interleaved(rank, p, m, v)] for rank in range(p)], f"{name}, {v} chunks")
    least = {"zb-h1": p, "zb-h2": 2 * p - 1, "zb-v": 2 * p - 1, "dualpipe-v": 2 * p}.get(name, 1)
    note = f"{name} fills its bubble with {least} micro-batches or more." if m < least else ""
    paths: tuple[StagePath, ...] = ()
    if name in ON_A_V:
        rows, paths = ON_A_V[name](p, m), (v_path(p),)
    elif name == "zb-h2" and m < least:
        rows = zb_h2_short(p, m)
    else:
        rows = [[*SCHEDULES[name](rank, p, m)] for rank in range(p)]
    return Schedule(rows, name, note, paths)
