"""A wrong schedule or pipeline program is refused with rank, micro-batch and piece."""

import numpy as np
import pytest

from labkit import pipelines
from labkit.exercises import check
from labkit.exercises.lectures.lecture_18_pipelines import DEADLOCK
from tests.exercises.cells import changed, refused, value


def rows_of(name):
    def answer(stages, microbatches):
        return pipelines.schedule(name, stages=stages, microbatches=microbatches).rows

    return answer


def reversed_gpipe(stages, microbatches):
    row = [("F", m) for m in range(microbatches)]
    return [row + [("B", m) for m in reversed(range(microbatches))] for _ in range(stages)]


def early(stages, microbatches):
    rows = rows_of("gpipe")(stages, microbatches)
    rows[-1].insert(0, rows[-1].pop())
    return rows


def short(stages, microbatches):
    return rows_of("1f1b")(stages, microbatches - 1 or 1)


def w_after_b(stages, microbatches):
    rows = rows_of("1f1b")(stages, microbatches)
    return [
        [one for m in row for one in ([m, ("W", m[1])] if m[0] == "B" else [m])] for row in rows
    ]


@pytest.mark.parametrize(
    ("task", "answer", "words"),
    [
        ("gpipe", rows_of("1f1b"), ["rank 1 begins B of micro-batch 0 before its last F"]),
        ("gpipe", early, ["Rank 1 has B of micro-batch 1 before its F"]),
        ("gpipe", short, ["microbatches=2", "1 micro-batches"]),
        ("one_f_one_b", rows_of("gpipe"), ["rank 1 holds 2 micro-batches at its peak; 1 are"]),
        ("one_f_one_b", rows_of("naive"), ["the bubble is", "3 is enough"]),
        ("zero_bubble", rows_of("1f1b"), ["no row has a W"]),
        ("zero_bubble", w_after_b, ["the bubble is", "1 is enough"]),
        ("zero_bubble", rows_of("zb-h2"), ["rank 0 holds 7 micro-batches", "4 are enough"]),
    ],
)
def test_a_schedule_is_refused_with_what_is_wrong(task, answer, words):
    refused(f"18.{task}", answer, *words)


def test_any_order_that_reaches_the_targets_is_right_and_is_shown():
    for task, answer in (("gpipe", reversed_gpipe), ("zero_bubble", rows_of("zb-h1"))):
        outcome = check(f"18.{task}", answer)
        assert outcome, outcome.text
        assert outcome.trace.schedule.stages == 4


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ((), ["On 2 ranks", "eadlock: rank 0 waits in Send", "rank 1 waits in Send"]),
        (("weight * dy", "dy"), ["on rank 0 the weight's gradient of micro-batch 0 is 1, not 3"]),
        (("ranks - 1 - rank", "m"), ["rank 0 has sent 4 activations", "GPipe"]),
        (
            ("ranks - 1 - rank", "0"),
            ["On 3 ranks", "rank 0 has sent 1 activations", "next ranks wait"],
        ),
    ],
)
def test_a_wrong_pipeline_program_is_refused_with_rank_and_micro_batch(change, words):
    answer = changed("18.no_deadlock", *change) if change else value(DEADLOCK.strip() + "\n")
    refused("18.no_deadlock", answer, *words)


def test_attention_may_be_a_loop_or_lists():
    def by_position(q, k, v):
        rows = []
        for row in range(len(q)):
            weights = np.exp(k[: row + 1] @ q[row] / q.shape[1] ** 0.5)
            rows.append((weights / weights.sum() @ v[: row + 1]).tolist())
        return rows

    assert check("18.attention", by_position)
