"""Bubbles and peaks are the published ones, and the clock is the longest path."""

import random
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit import LabError, pipelines
from tests.cluster.test_frameworks import TIMEOUT, cluster
from tests.pipelines import oracles

NAMES = ("naive", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2")
TIMES = [(1.0, 1.0, 1.0), (1.0, 1.5, 0.75), (2.0, 1.0, 1.0), (1.0, 2.0, 0.5)]


def made(name, p, m, v=1):
    return pipelines.schedule(
        name, stages=p, micro_batches=p * m if name == "interleaved" else m, chunks=v
    )


@pytest.mark.parametrize("name", NAMES)
def test_bubbles_and_peaks_are_the_published_ones(name):
    chunks = range(1, 5) if name == "interleaved" else [1]
    for p, count, v in product((1, 2, 3, 4, 6), (1, 2, 3, 4, 7, 13), chunks):
        s = made(name, p, count, v)
        m = s.micro_batches
        assert s.peaks() == [oracles.peak(name, p, m, v, rank) for rank in range(p)]
        enough = {"zb-h1": p, "zb-h2": 2 * p - 1}.get(name, 1)
        assert bool(s.note) == (m < enough)
        for forward, backward, weight in TIMES:
            t = s.timeline(forward, backward, weight=weight)
            ideal = m * (forward + backward + weight)
            assert t.ideal == pytest.approx(ideal)
            bubble = oracles.bubble(name, p, m, v, forward, backward, weight)
            if m < enough:
                assert t.bubble > bubble
                continue
            assert t.bubble == pytest.approx(bubble)
            assert t.ratio_to_ideal == pytest.approx(bubble / ideal)
            assert t.share_of_total == pytest.approx(bubble / (ideal + bubble))
            if name != "zb-h2":
                assert t.total == pytest.approx(ideal + bubble)
            elif forward == backward == weight:  # the ranks end one after the other
                assert t.total == pytest.approx(ideal + (p - 1) * forward)


@pytest.mark.parametrize("p", [2, 3, 8])
def test_what_zero_bubble_keeps_is_what_its_paper_says(p):
    b, w = 5.0, 2.0
    for rank, (h1, h2) in enumerate(
        zip(made("zb-h1", p, 3 * p).peaks(b, w), made("zb-h2", p, 3 * p).peaks(b, w), strict=True)
    ):
        i = rank + 1
        assert h1 == (p - i + 1) * b + (i - 1) * w
        assert h2 == (2 * p - 2 * i + 1) * b + (2 * i - 2) * w


@pytest.mark.parametrize(
    ("p", "m", "times", "shares"),
    [  # F, B, W and hop of its table 9
        (8, 24, (18.522, 18.086, 9.337, 0.601), (0.2431, 0.1585, 0.1083)),
        (8, 64, (29.935, 29.621, 19.388, 0.535), (0.1091, 0.0554, 0.0294)),
        (16, 48, (11.347, 11.248, 8.132, 0.377), (0.2552, 0.1397, 0.0672)),
        (32, 256, (10.402, 10.248, 7.698, 0.460), (0.1352, 0.0594, 0.0257)),
    ],
)
def test_the_shares_of_table_5_of_the_zero_bubble_paper_to_the_last_digit(p, m, times, shares):
    forward, backward, weight, hop = times
    for name, share in zip(("1f1b", "zb-h1", "zb-h2"), shares, strict=True):
        t = made(name, p, m).timeline(forward, backward, weight=weight, hop=hop)
        assert round(t.share_of_total, 4) == share


def test_with_a_hop_1f1b_waits_in_its_steady_phase_and_gpipe_does_not():
    found = {(name, m): made(name, 4, m).timeline(1.0, 2.0, hop=0.1).bubble
             for name in ("gpipe", "1f1b") for m in (8, 16)}  # fmt: skip
    assert [found["1f1b", 8], found["1f1b", 16]] == pytest.approx([10.6, 11.8])
    assert [found["gpipe", 8], found["gpipe", 16]] == pytest.approx([9.6, 9.6])


@st.composite
def runnable(draw):
    """Rows of a random order in which each piece comes after what it needs."""
    p, m = draw(st.integers(1, 4)), draw(st.integers(2, 4))
    down, up = ([(rank, chunk) for rank in range(p)] for chunk in (0, 1))
    paths = draw(st.sampled_from([[down], [down + up], [down + up[::-1]], [down, up[::-1]]]))
    weights, pick = draw(st.booleans()), random.Random(draw(st.integers(0, 10**6)))
    kinds = "FBW" if weights else "FB"
    open_ = {(k, i, s) for k in kinds for i in range(m) for s in range(len(paths[0]))}
    rows = [[] for _ in range(p)]
    while open_:

        def ready(one):
            kind, i, s = one
            before = {"F": ("F", i, s - 1), "B": ("B", i, s + 1), "W": ("B", i, s)}[kind]
            return before not in open_ and (kind != "B" or ("F", i, s) not in open_)

        kind, i, s = pick.choice(sorted(filter(ready, open_)))
        open_.remove((kind, i, s))
        rank, chunk = paths[i % len(paths)][s]
        rows[rank].append((kind, i, chunk))
    return pipelines.Schedule(rows, paths=paths)


@settings(max_examples=60)
@given(runnable(), st.lists(st.floats(0.1, 3), min_size=12, max_size=12), st.floats(0, 1))
def test_any_schedule_on_any_placement_takes_its_longest_path(s, times, hop):
    rows, p, parts = s.rows, s.stages, len(s.paths[0]) / s.stages
    forward, backward, weight = times[:p], times[4 : 4 + p], times[8 : 8 + p]
    t = s.timeline(forward, backward, weight=weight, hop=hop)
    if not s.has_weights:
        backward = [b + w for b, w in zip(backward, weight, strict=True)]
    seconds = {"F": forward, "B": backward, "W": weight}
    seconds = {kind: [one / parts for one in found] for kind, found in seconds.items()}
    starts = oracles.longest_path(rows, s.paths, seconds, hop)
    for (rank, place), start in starts.items():
        assert t.starts[rank][place] == pytest.approx(start)
    last = "W" if s.has_weights else "B"
    for rank, row in enumerate(rows):  # what is held, counted over time
        begin = [t.starts[rank][i] for i, one in enumerate(row) if one[0] == "F"]
        end = [t.ends[rank][i] for i, one in enumerate(row) if one[0] == last]
        held = max(sum(b <= now for b in begin) - sum(e <= now for e in end) for now in begin)
        assert t.peak_activations[rank] == pytest.approx(held / parts)


GOOD = pipelines.schedule("1f1b", stages=3, micro_batches=4).rows


def changed(change):
    rows = [list(row) for row in GOOD]
    change(rows)
    return rows


def swap(rank, i, j):
    def change(rows):
        rows[rank][i], rows[rank][j] = rows[rank][j], rows[rank][i]

    return changed(change)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (swap(2, 0, 1), ["Rank 2", "B of micro-batch 0", "before its F"]),
        (changed(lambda rows: rows[1].remove(("B", 3))), ["Rank 1", "no B of micro-batch 3"]),
        (changed(lambda rows: rows[1].append(("F", 3))), ["Rank 1", "F of micro-batch 3", "twice"]),
        (changed(lambda rows: rows[0].append(("W", 2))), ["Rank 0", "no W of micro-batch 0"]),
        ([[("F", 0), ("X", 0)]], ["Rank 0", "('X', 0)"]),
        ([[("F", 0), ("B", 0)], [("F", -1)]], ["Rank 1", "-1"]),
        ([[("F", 0), ("B", 0)], []], ["Rank 1", "no F of micro-batch 0"]),
        ([], ["a row for each rank"]),
        ([("F", 0), ("B", 0)], ["Rank 0", "'F'"]),
        ([[("F", 0, 0), ("F", 0, 1), ("B", 0, 0), ("B", 0, 1)]], ["B of micro-batch 0", "chunk 1"]),
        (
            [[("F", 0), ("B", 0), ("F", 1), ("B", 1)], [("F", 1), ("F", 0), ("B", 0), ("B", 1)]],
            ["rank 0 waits, before B", "rank 1 waits, before F of micro-batch 1"],
        ),
    ],
)
def test_an_impossible_schedule_is_refused_with_rank_micro_batch_and_piece(rows, words):
    with pytest.raises(LabError) as refused:
        pipelines.Schedule(rows)
    assert [word for word in words if word not in str(refused.value)] == []


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: pipelines.schedule("2f2b", stages=4, micro_batches=8), "zb-h2"),
        (lambda: pipelines.schedule("interleaved", stages=4, micro_batches=9), "Take 8"),
        (lambda: pipelines.schedule("1f1b", stages=0, micro_batches=6), "stages"),
        (lambda: pipelines.schedule("1f1b", stages=10**5, micro_batches=10**5), "100,000 stages"),
        (lambda: pipelines.schedule("gpipe", stages=2, micro_batches=2, chunks=7), "gpipe .* 7"),
        (lambda: pipelines.Schedule(GOOD).timeline(forward=[1, 2]), "3 ranks"),
        (lambda: pipelines.Schedule(GOOD).timeline(backward=0), "backward"),
        (lambda: pipelines.Schedule(GOOD).timeline(hop=-1), "hop"),
    ],
)
def test_a_wrong_argument_is_named(call, word):
    with pytest.raises(LabError, match=word):
        call()


def test_an_own_schedule_is_a_copy_and_may_be_a_changed_one():
    rows = changed(lambda rows: rows[0].sort(key=lambda piece: piece[0] == "B"))
    own = pipelines.Schedule(rows)
    rows[0].clear()
    assert own.rows[0][:4] == [("F", 0), ("F", 1), ("F", 2), ("F", 3)]
    assert own.timeline().peak_activations == [4, 2, 1]


def test_64_stages_and_1024_micro_batches_are_still_exact():
    t = made("zb-h2", 64, 1024).timeline(1, 1, weight=1)
    assert (t.bubble, t.total) == (0, 3 * 1024 + 63)
    assert set(t.peak_activations) == {127}


def sizes_of(s):
    """Ticks beyond those of the work, where F, B and W of a chunk take one, and chunks held."""
    t = s.timeline(1, 1, weight=1)
    parts = len(s.paths[0]) / s.stages
    return t.total * parts - 3 * parts * s.micro_batches, [parts * one for one in s.peaks()]


ALL_SIZES = [(p, m) for p in range(2, 9) for m in range(2, 33)]


@pytest.mark.parametrize("name", ["zb-v", "dualpipe-v"])
def test_on_a_v_neither_makespan_nor_memory_exceeds_that_of_pytorch(name):
    """Against numbers recorded from torch 2.13; the next test asks torch itself."""
    for p, m in ALL_SIZES:
        theirs = oracles.torch_on_a_v(name, p, m)
        if theirs:
            extra, held = sizes_of(pipelines.schedule(name, stages=p, micro_batches=m))
            assert extra <= theirs[0], (p, m)
            assert max(held) <= theirs[1], (p, m)


def test_zb_v_waits_only_until_the_first_micro_batch_is_down():
    for p, m in ((4, 8), (8, 16), (16, 40)):
        s = pipelines.schedule("zb-v", stages=p, micro_batches=m)
        assert sizes_of(s) == (p - 1, [2 * p] * p)
        assert s.timeline(1, 1, weight=1).bubble == 0  # the ranks end as they began
        assert not s.note


@pytest.mark.parametrize("name", ["v-half", "v-min"])
def test_half_and_a_third_of_the_memory_cost_the_bubble_of_their_authors(name):
    for (p, m), (theirs, peak) in getattr(oracles, name.upper().replace("-", "_")).items():
        extra, held = sizes_of(pipelines.schedule(name, stages=p, micro_batches=m))
        assert extra == theirs, (p, m)
        assert max(held) == peak, (p, m)


def test_with_few_micro_batches_zb_h2_takes_what_its_authors_take():
    for p, total in ((4, 15), (8, 31)):
        assert made("zb-h2", p, p).timeline(1, 1, weight=1).total == total


def test_a_schedule_on_a_v_is_placed_on_a_v_and_its_clock_is_the_longest_path():
    for name, p, m in product(("zb-v", "v-half", "v-min", "dualpipe-v"), (1, 2, 3, 5), (1, 2, 7)):
        s = pipelines.schedule(name, stages=p, micro_batches=m)
        assert s.paths == ((*((r, 0) for r in range(p)), *((r, 1) for r in reversed(range(p)))),)
        seconds = {"F": [0.5] * p, "B": [0.75] * p, "W": [0.375] * p}
        starts = oracles.longest_path(s.rows, s.paths, seconds, 0.1)
        t = s.timeline(1.0, 1.5, weight=0.75, hop=0.1)
        for (rank, place), start in starts.items():
            assert t.starts[rank][place] == pytest.approx(start)


def test_pytorch_itself_is_not_faster_on_a_v():
    def orders(_, sizes):
        from unittest.mock import MagicMock

        from torch.distributed.pipelining import schedules

        kinds = {"FORWARD": "F", "FULL_BACKWARD": "BW", "BACKWARD_INPUT": "B"}
        kinds["BACKWARD_WEIGHT"] = "W"

        def pieces(action, p):
            for one in getattr(action, "sub_actions", None) or [action]:
                for kind in kinds[one.computation_type.name]:
                    yield kind, one.microbatch_index, int(one.stage_index >= p)

        found = {}
        names = {"zb-v": "ScheduleZBVZeroBubble", "dualpipe-v": "ScheduleDualPipeV"}
        for name, (p, m) in ((name, size) for name in names for size in sizes):
            if name == "dualpipe-v" and m < 2 * p:
                continue
            stages = [
                MagicMock(group_size=p, num_stages=2 * p, group_rank=0, stage_index=stage)
                for stage in (0, 2 * p - 1)
            ]
            order = getattr(schedules, names[name])(stages, m).pipeline_order
            found[name, p, m] = [
                [piece for action in order[rank] if action for piece in pieces(action, p)]
                for rank in range(p)
            ]
        return found

    with cluster("torch", 1) as c:
        found = c.run(orders, ALL_SIZES[::3], timeout=TIMEOUT, show=False)[0]
    for (name, p, m), rows in found.items():
        ours = pipelines.schedule(name, stages=p, micro_batches=m)
        theirs = pipelines.Schedule(rows, paths=ours.paths)
        extra, held = sizes_of(theirs)
        assert (extra, max(held)) == oracles.torch_on_a_v(name, p, m)
        mine, kept = sizes_of(ours)
        assert mine <= extra
        assert max(kept) <= max(held)
        both = theirs.timeline(1, 1, weight=1), ours.timeline(1, 1, weight=1)
        assert both[1].bubble <= both[0].bubble


def test_the_orders_are_those_of_pytorch():
    """But for the last rank of its Schedule1F1B: torch 2.13 lists F1 to Fm there, and never F0."""
    sizes = [(p, m) for p in (2, 3, 4) for m in (2, 3, 4, 8, 10)]
    names = {
        "gpipe": ("ScheduleGPipe", 1),
        "1f1b": ("Schedule1F1B", 1),
        "interleaved": ("ScheduleInterleaved1F1B", 2),
        "zb-h1": ("ScheduleInterleavedZeroBubble", 1),
    }

    def orders(_, wanted):
        from unittest.mock import MagicMock

        from torch.distributed.pipelining import schedules

        found = []
        for name, chunks, p, m in wanted:
            stages = [
                MagicMock(group_size=p, num_stages=p * chunks, group_rank=0, stage_index=p * chunk)
                for chunk in range(chunks)
            ]
            try:
                single = name in ("ScheduleGPipe", "Schedule1F1B")
                made = getattr(schedules, name)(stages[0] if single else stages, m)
            except ValueError:
                found.append(None)
                continue
            kinds = {"FORWARD": "F", "FULL_BACKWARD": "B", "BACKWARD_INPUT": "B"}
            kinds["BACKWARD_WEIGHT"] = "W"
            rows = [
                [(kinds[one.computation_type.name], one.microbatch_index, one.stage_index // p)
                 for one in row if one is not None and one.computation_type.name in kinds]
                for _, row in sorted(made.pipeline_order.items())
            ]  # fmt: skip
            found.append(rows)
        return found

    wanted = [(*names[name], p, m) for name in names for p, m in sizes]
    with cluster("torch", 1) as c:
        found = c.run(orders, wanted, timeout=TIMEOUT, show=False)[0]
    for (name, (p, m)), rows in zip(product(names, sizes), found, strict=True):
        if rows is None:  # zero bubbles and 1F1B are refused there for reasons of torch's own
            if name == "interleaved":
                with pytest.raises(LabError):
                    pipelines.schedule(name, stages=p, micro_batches=m)
            continue
        ours = pipelines.schedule(name, stages=p, micro_batches=m).rows
        ours = [[(*piece[:2], *(piece[2:] or (0,))) for piece in row] for row in ours]
        last = -1 if name == "1f1b" else None
        assert ours[:last] == rows[:last], (name, p, m)
