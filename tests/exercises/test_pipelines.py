"""A wrong schedule or pipeline program is refused with rank, micro-batch and piece."""

import numpy as np
import pytest

from labkit import pipelines
from labkit.exercises import check
from labkit.pipelines.page.pipeline import content
from tests.exercises.cells import refused, tasks, value


def rows_of(name):
    def answer(stages, micro_batches):
        return pipelines.schedule(name, stages=stages, micro_batches=micro_batches).rows

    return answer


def reversed_gpipe(stages, micro_batches):
    row = [("F", m) for m in range(micro_batches)]
    return [row + [("B", m) for m in reversed(range(micro_batches))] for _ in range(stages)]


def early(stages, micro_batches):
    rows = rows_of("gpipe")(stages, micro_batches)
    rows[-1].insert(0, rows[-1].pop())
    return rows


def short(stages, micro_batches):
    return rows_of("1f1b")(stages, micro_batches - 1 or 1)


def w_after_b(stages, micro_batches):
    rows = rows_of("1f1b")(stages, micro_batches)
    return [
        [one for m in row for one in ([m, ("W", m[1])] if m[0] == "B" else [m])] for row in rows
    ]


@pytest.mark.parametrize(
    ("task", "answer", "words", "opens"),
    [
        ("gpipe", rows_of("1f1b"), ["rank 1 begins B of micro-batch 0 before its last F"], 2),
        ("gpipe", early, ["Rank 1 has B of micro-batch 1 before its F"], None),
        ("gpipe", short, ["micro_batches=2", "1 micro-batches"], None),
        ("one_f_one_b", rows_of("gpipe"), ["rank 1 holds 2 micro-batches at its peak; 1 is"], 2),
        ("one_f_one_b", rows_of("naive"), ["the bubble is", "3 is enough"], 1),
        ("zero_bubble", rows_of("1f1b"), ["no row has a W"], 0),
        ("zero_bubble", w_after_b, ["the bubble is", "1 is enough"], 2),
        ("zero_bubble", rows_of("zb-h2"), ["rank 0 holds 7 micro-batches", "4 are enough"], 4),
    ],
)
def test_a_schedule_is_refused_with_what_is_wrong_and_opens_there(task, answer, words, opens):
    shown = refused(f"40.{task}", answer, *words).trace
    assert getattr(shown, "opens", None) == opens
    assert shown is None or content(shown).get("opens", 0) == opens


def test_any_order_that_reaches_the_targets_is_right_and_is_shown():
    for task, answer in (("gpipe", reversed_gpipe), ("zero_bubble", rows_of("zb-h1"))):
        outcome = check(f"40.{task}", answer)
        assert outcome, outcome.text
        assert outcome.trace.schedule.stages == 4


def in_turns(ranks, micro_batches):
    """Chunks in turns, as interleaving places them: with B whole, and W right behind it."""
    rows = pipelines.schedule("interleaved", stages=ranks, micro_batches=micro_batches).rows
    return [
        [one for b in row for one in ([b, ("W", *b[1:])] if b[0] == "B" else [b])] for row in rows
    ]


def on_a_v(name):
    def answer(ranks, micro_batches):
        return pipelines.schedule(name, stages=ranks, micro_batches=micro_batches).rows

    return answer


def test_rows_on_a_v_may_have_any_order_that_reaches_both_targets():
    assert check("40.zb_v", on_a_v("zb-v"))
    assert check("40.v_path", lambda ranks: np.array(pipelines_path(ranks)))
    refused("40.zb_v", on_a_v("v-half"), "the step takes", "are enough")
    refused("40.zb_v", on_a_v("dualpipe-v"), "rank 0 holds the activations of 3 chunks")
    refused("40.zb_v", lambda p, m: in_turns(p, m if p == 1 else 2 * p), "rank k mod p")


def pipelines_path(ranks):
    return [list(one) for one in pipelines.schedule("zb-v", stages=ranks, micro_batches=1).paths[0]]


def test_the_pipeline_program_of_the_cell_waits_on_two_ranks():
    words = "On 2 ranks", "eadlock: rank 0 waits in Send", "rank 1 waits in Send"
    refused("40.no_deadlock", value(tasks()["40.no_deadlock"].given), *words)


def test_attention_may_be_a_loop_or_lists():
    def by_position(q, k, v):
        rows = []
        for row in range(len(q)):
            scores = (k[: row + 1] @ q[row] / q.shape[1] ** 0.5).astype(np.float32)
            weights = np.exp(scores - scores.max())
            rows.append((weights / weights.sum() @ v[: row + 1]).tolist())
        return rows

    assert check("41.attention", by_position)
