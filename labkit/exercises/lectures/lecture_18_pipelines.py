"""The tasks of lecture 18: pipelines, and the transformer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from labkit.exercises.judges.answers import function, function_task, judged, number
from labkit.exercises.judges.model_parallel import sends_before
from labkit.exercises.task import Task, Wrong
from labkit.kinds import LabError

if TYPE_CHECKING:
    from labkit.collectives import Trace
    from labkit.pipelines import Timeline

SIZES = ((2, 2), (4, 8), (3, 7), (1, 3), (5, 2), (8, 16))  # stages, micro-batches
DEADLOCK = """
def my_pipeline(comm, buffer):
    rank, ranks, m = comm.Get_rank(), comm.Get_size(), buffer.size
    weight, ahead = rank + 2.0, ranks - 1 - rank
    kept = []
    for number in range(m + ahead):
        if number < m:  # forward
            x = buffer[number : number + 1].copy()
            if rank > 0:
                comm.Recv(x, source=rank - 1)
            if rank < ranks - 1:
                comm.Send(weight * x, dest=rank + 1)
            kept.append(x)
        if number >= ahead:  # backward, of an earlier micro-batch
            dy = np.ones(1)
            if rank < ranks - 1:
                comm.Recv(dy, source=rank + 1)
            if rank > 0:
                comm.Send(weight * dy, dest=rank - 1)
            buffer[number - ahead] = (dy * kept.pop(0))[0]
"""


def rows(
    faults: Callable[[Timeline], Iterator[str]],
    sizes: tuple[tuple[int, int], ...] = SIZES,
    weight: float | None = None,
) -> Callable[[Any], Timeline]:
    """A function of (stages, microbatches) that returns rows; the timeline of 4 and 8 is shown.

    The schedule must be possible, and `faults` finds none. F takes 1 and B 2; with W, all take 1.
    """

    def examine(mine: Callable[..., Any]) -> Timeline:
        from labkit import pipelines

        shown = {}

        for stages, count in sizes:
            size = f"With stages={stages} and microbatches={count}"
            found = mine(stages, count)
            try:
                schedule = pipelines.Schedule(found, name="your schedule")
            except LabError as fault:
                raise Wrong(f"{size}: {fault}") from None
            if (schedule.stages, schedule.microbatches) != (stages, count):
                has = f"{schedule.stages} rows and {schedule.microbatches} micro-batches"
                raise Wrong(f"{size}: it returned {has}.")
            backward = 2.0 if weight is None else 1.0
            timeline = schedule.timeline(1.0, backward, weight=weight)
            for fault_text in faults(timeline):
                raise Wrong(f"{size}: {fault_text}", timeline)
            shown[stages, count] = timeline
        return shown[4, 8]

    return function(examine)


def _no_gpipe(t: Timeline) -> Iterator[str]:
    for rank, row in enumerate(t.schedule.rows):
        kinds = [piece[0] for piece in row]
        if kinds != sorted(kinds, reverse=True):  # F before B
            m = row[kinds.index("B")][1]
            yield f"rank {rank} begins B of micro-batch {m} before its last F."
    yield from _too_long(t, 3 * (t.schedule.stages - 1))


def _too_long(t: Timeline, bubble: float) -> Iterator[str]:
    if t.bubble > bubble + 1e-9:
        yield f"the bubble is {t.bubble:g}; {bubble:g} is enough."


def _holds(t: Timeline, most: list[int]) -> Iterator[str]:
    for rank, (held, enough) in enumerate(zip(t.peak_activations, most, strict=True)):
        if held > enough:
            yield f"rank {rank} holds {held:g} micro-batches at its peak; {enough} are enough."


def _no_1f1b(t: Timeline) -> Iterator[str]:
    p, m = t.schedule.stages, t.schedule.microbatches
    yield from _holds(t, [min(m, p - rank) for rank in range(p)])
    yield from _too_long(t, 3 * (p - 1))


def _no_zero_bubble(t: Timeline) -> Iterator[str]:
    p = t.schedule.stages
    if not t.schedule.has_weights:
        yield "no row has a W. Without it, B is the whole backward pass and takes 2."
    yield from _holds(t, [p] * p)
    yield from _too_long(t, p - 1)


def _pipeline_program(answer: Any) -> Trace:
    """1F1B with a number for each micro-batch: the gradients of the product of all weights."""
    for ranks, count in ((2, 4), (3, 5), (1, 2)):
        _prove(answer, ranks, count)
    return _prove(answer, 4, 8)


def _prove(answer: Callable[..., Any], ranks: int, count: int) -> Trace:
    from labkit import collectives

    x = np.arange(1.0, count + 1)
    inputs = [x if rank == 0 else np.zeros(count) for rank in range(ranks)]
    size = f"On {ranks} rank{'s' * (ranks > 1)} with {count} micro-batches"
    try:
        trace = collectives.run(answer, inputs, timeout=10)
    except LabError as fault:
        raise Wrong(f"{size}: {fault}") from None
    product = np.prod(np.arange(ranks) + 2.0)
    for rank, found in enumerate(trace.outputs):
        right = x * product / (rank + 2)
        for m in np.flatnonzero(~np.isclose(found, right))[:1]:
            text = f"the weight's gradient of micro-batch {m} is {found[m]:g}, not {right[m]:g}"
            raise Wrong(
                f"{size}: on rank {rank} {text}: x times the weights of all other ranks.", trace
            )
    for rank in range(ranks - 1):
        ahead = sends_before(trace, rank, rank + 1)
        for m, sent in enumerate(ahead):
            most = min(count, m + ranks - rank)  # one less where a gradient is received first
            if not min(count, most - 1) <= sent <= most:
                order = "GPipe's order" if sent == count else "the next ranks wait"
                text = f"rank {rank} has sent {sent} activations when it has gradient {m}: {order}."
                raise Wrong(f"{size}: {text} In 1F1B it has sent {most}.", trace)
    return trace


# Of several sequences, of which one has a single position: q, k and v.
RANDOM = np.random.default_rng(0)
QKV = [
    tuple(RANDOM.normal(size=(length, size)) for size in (d, d, e))
    for length, d, e in ((3, 4, 2), (1, 2, 3), (5, 2, 2))
]


TASKS = {
    "18.naive_share": Task(
        "Five devices hold a fifth of the layers each, and the whole batch goes through them. "
        "For what share of the time, in %, does a device compute?",
        number(20, "%"),
        ("How many devices compute at the same time?",),
        "answer = 100 * 1 / 5  # one of five at any time",
        "One device computes at a time. Four fifths of the hardware wait.",
        slips={80: "That is the share in which it waits."},
    ),
    "18.gpipe": Task(
        "Write my_gpipe(stages, microbatches): a list of rows, one for each rank, in which all F "
        'come before all B. A row is a list of pieces such as ("F", 0).',
        rows(_no_gpipe),
        (
            "Every rank has the same row.",
            "A row has the F of all micro-batches, then the B of all micro-batches.",
        ),
        """
def my_gpipe(stages, microbatches):
    row = [("F", m) for m in range(microbatches)]
    row += [("B", m) for m in range(microbatches)]
    rows = [list(row) for rank in range(stages)]
    return rows
""",
        "The order of the B may also be reversed, as in the figure of the GPipe paper.",
    ),
    "18.bubble_share": Task(
        "8 stages, 24 micro-batches, F and B of any length: which share of the step is the bubble "
        "of GPipe, in %?",
        number(700 / 31, "%", within=0.005),
        ("The bubble is as long as p - 1 micro-batches.", "The step has m + p - 1 of that length."),
        "answer = 100 * (8 - 1) / (24 + 8 - 1)",
        "22.6 % of the step; over the ideal time it is 7 / 24 = 29.2 %. Name the convention.",
        slips={
            29.17: "That is the ratio to the ideal time.",
            25.81: "It is as long as p - 1 of them.",
        },
    ),
    "18.how_many": Task(
        "With 8 stages, which is the smallest number of micro-batches for which the bubble of "
        "GPipe is at most 5 % of the step?",
        number(133),
        ("(p - 1) / (m + p - 1) ≤ 0.05", "Solve 7 / (m + 7) = 0.05 for m."),
        "answer = 7 / 0.05 - 7",
        "133: a large batch, cut into small pieces. The GPipe paper calls the bubble almost "
        "negligible from m = 4 p on: 18 % of the step here.",
        slips={140: "That is 5 % of the ideal time.", 132: "7 / 139 is above 5 %."},
    ),
    "18.one_f_one_b": Task(
        "Write my_1f1b(stages, microbatches): rows with GPipe's bubble in which rank r of p holds "
        "at most p - r micro-batches at the same time.",
        rows(_no_1f1b),
        (
            "A rank begins with as many F as there are ranks after it, then alternates F and B.",
            "Rank r has ahead = stages - 1 - r. In turn m it does F of m + ahead, if there is one, "
            "and then B of m.",
            "With few micro-batches, the first phase has min(ahead, microbatches) F.",
        ),
        """
def my_1f1b(stages, microbatches):
    rows = []
    for rank in range(stages):
        ahead = stages - 1 - rank
        row = [("F", m) for m in range(min(ahead, microbatches))]
        for m in range(microbatches):
            if m + ahead < microbatches:
                row.append(("F", m + ahead))
            row.append(("B", m))
        rows.append(row)
    return rows
""",
        "The same bubble, and memory for p micro-batches in place of m.",
        difficulty=2,
    ),
    "18.memory_ratio": Task(
        "8 stages, 64 micro-batches: how many times as many activations does rank 0 hold under "
        "GPipe as under 1F1B?",
        number(8),
        ("GPipe holds all micro-batches.", "1F1B holds p on rank 0."),
        "answer = 64 / 8",
        "So with 1F1B the number of micro-batches may grow without more memory.",
        slips={64: "That is what GPipe holds.", 0.125: "That is 1F1B over GPipe."},
    ),
    "18.interleaved": Task(
        "8 ranks, 16 micro-batches, interleaved 1F1B with 4 chunks on each rank: the bubble over "
        "the ideal time, in %?",
        number(700 / 64, "%", within=0.005),
        ("Without chunks it is (p - 1) / m.", "Each fill and drain is v times shorter."),
        "answer = 100 * (8 - 1) / (4 * 16)",
        "10.9 % in place of 43.8 %, for more than four times as many messages.",
        slips={9.86: "That is the share of the step.", 43.75: "That is without chunks."},
    ),
    "18.no_deadlock": Task(
        "Fix my_pipeline(comm, buffer): it must end, in the order of 1F1B, and with its gradients.",
        judged(_pipeline_program, seconds=30),
        (
            "Read the deadlock: which two ranks send to each other at the same time?",
            "comm.Isend returns at once. Its buffer must stay as it is until Wait.",
            "Collect the requests in a list, and wait for all of them after the loop.",
        ),
        re.sub(r"comm.Send\((.*)\)", r"sends.append(comm.Isend(\1))", DEADLOCK).replace(
            "kept = []", "kept, sends = [], []"
        )
        + "    for send in sends:\n        send.Wait()\n",
        "Megatron-LM pairs each send with a receive (Sendrecv) for the same reason.",
        difficulty=2,
        given=DEADLOCK,
    ),
    "18.zero_bubble": Task(
        "Write my_schedule(stages, microbatches) with F, B and W, each of length 1, for at least "
        "as many micro-batches as stages: p ranks, a bubble of at most p - 1, and no rank may hold "
        "more than p micro-batches (from F until W). 1F1B has a bubble of 3 (p - 1).",
        rows(_no_zero_bubble, ((2, 2), (4, 8), (3, 7), (1, 3), (8, 16)), weight=1.0),
        (
            "Begin with your 1F1B, and put each W directly after its B. How long is the bubble?",
            "Rank 0 waits for gradients from the last rank. Let later ranks do B first and W "
            "later: the last rank may hold p micro-batches, 1F1B lets it hold one.",
            "On rank r, put W of micro-batch m - r after B of m, and the last r W at the end.",
        ),
        """
def my_schedule(stages, microbatches):
    rows = []
    for rank in range(stages):
        ahead = stages - 1 - rank
        row = [("F", m) for m in range(min(ahead, microbatches))]
        for m in range(microbatches):
            if m + ahead < microbatches:
                row.append(("F", m + ahead))
            row.append(("B", m))
            if m >= rank:
                row.append(("W", m - rank))
        row += [("W", m) for m in range(microbatches - rank, microbatches)]
        rows.append(row)
    return rows
""",
        "This is ZB-H1: a third of the bubble of 1F1B, in the memory of its rank 0.",
        difficulty=3,
    ),
    "18.attention": function_task(
        "Write my_attention(q, k, v), the attention of all positions of one head at once: q and k "
        "have shape (s, d), v (s, e). Return (s, e). No position reads a later one.",
        QKV,
        (
            "scores = q @ k.T / np.sqrt(d): row i has the scores of position i.",
            "np.where(later, -np.inf, scores) takes the later positions out: exp(-inf) is 0. "
            "np.triu(np.ones((s, s)), k=1) is 1 right of the diagonal.",
            "Softmax of each row: exp, divided by the sum along axis 1 with keepdims=True.",
        ),
        """
import numpy as np

def my_attention(q, k, v):
    scores = q @ k.T / np.sqrt(q.shape[1])
    later = np.triu(np.ones(scores.shape), k=1) > 0
    weights = np.exp(np.where(later, -np.inf, scores - scores.max(axis=1, keepdims=True)))
    weights /= weights.sum(axis=1, keepdims=True)
    return weights @ v
""",
        "One matrix product for the scores and one for the result: s × s × (d + e) "
        "multiplications.",
        slips=[
            ("later,", "later & False,", "A position must not read later ones."),
            (" / np.sqrt(q.shape[1])", "", "Divide the scores by the root of a query's length."),
            (
                "-np.inf, scores - scores.max(axis=1, keepdims=True)",
                "0, scores",
                "exp(0) is 1: mask with -inf, before softmax.",
            ),
        ],
        difficulty=2,
    ),
    "18.scores": Task(
        "32 heads, a sequence of 4,096 tokens, hidden size 4,096: how many millions of scores has "
        "one layer, the masked ones included?",
        number(536.87, within=0.01),
        ("Each head has s × s scores.",),
        "answer = 32 * 4096**2 / 1e6",
        "32 times as many numbers as x has. That is why lecture 21 does not keep them.",
        slips={268.44: "The masked ones are included.", 16.78: "That is one head."},
    ),
    "18.layer_parameters": Task(
        "How many millions of parameters has a layer with hidden size 4,096 and an MLP four times "
        "as wide, without biases and norms?",
        number(201.33, within=0.01),
        ("Four matrices of h × h, and two of h × 4 h.",),
        "answer = 12 * 4096**2 / 1e6",
        "32 such layers and the embedding are a model of about 7 billion parameters.",
        slips={67.11: "That is attention alone.", 134.22: "That is the MLP alone."},
    ),
}
