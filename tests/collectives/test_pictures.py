"""Pictures of a run: true values and contributions, arrows, what is left out, lanes of time."""

import functools

import numpy as np
import pytest

from labkit import collectives
from labkit.collectives import programs
from labkit.collectives.page.run_timeline import bars
from labkit.collectives.page.still import still
from labkit.kinds import seconds_text
from labkit.views import sketch

LINKS = {"latency": 5e-6, "bandwidth": 1e9}


@functools.cache
def run(name, ranks=4, **options):
    return collectives.run(getattr(programs, name), ranks=ranks, **options)


@pytest.fixture
def board(monkeypatch):
    """Draws a figure and gives back the sketch itself, whose words and arrows can be read."""
    boards = []
    monkeypatch.setattr(sketch.Sketch, "picture", lambda self, *_, **__: boards.append(self))

    def draw(trace):
        still(trace, trace.contributions(), "in words")
        return boards[-1]

    return draw


def words(board):
    return [word.text for word in board.words]


def test_the_true_values_are_shown_after_each_step(board):
    drawn = words(board(run("all_gather")))
    assert {str(value) for value in range(1, 17)} <= set(drawn)
    # A rank's chunk is there from the beginning, and with one more rank after each of three steps.
    assert [drawn.count(chunk) for chunk in ("6", "11", "16")] == [1 + 2 + 3 + 4] * 3


def test_a_small_run_is_shown_step_by_step_and_of_a_large_one_is_said_what_is_left_out(board):
    small = words(board(run("ring_all_reduce")))
    assert [word for word in small if word.startswith("step ")] == [
        f"step {n}" for n in range(1, 7)
    ]
    assert not any("Shown" in word for word in small)
    large = words(board(run("ring_all_reduce", 17)))
    assert {"the beginning", "step 1", "step 32"} <= {word.removeprefix("… ") for word in large}
    (said,) = [word for word in large if "Shown" in word]
    assert said.startswith("Shown: 2 of 32 steps, 8 of 17 ranks, ")


def test_what_is_counted_twice_is_marked(board):
    def greedy(comm, buffer):
        rank, ranks = comm.Get_rank(), comm.Get_size()
        other = np.empty_like(buffer)
        for _ in range(ranks):
            comm.Sendrecv(buffer, (rank + 1) % ranks, recvbuf=other, source=(rank - 1) % ranks)
            buffer += other

    assert "2×" in words(board(collectives.run(greedy, ranks=2)))
    assert "2×" not in words(board(run("ring_all_reduce", 2)))


@pytest.mark.parametrize("name", ["all_to_all", "reduce", "recursive_doubling_all_reduce"])
def test_each_message_is_an_arrow_from_its_sender_to_its_receiver(board, name):
    trace = run(name)
    drawn = board(trace)
    # The middle of the first four numbers of ranks: the rows.
    rows = [one.area.middle[1] for n in range(4) for one in drawn.words if one.text == str(n)
            and one.area.x < 60]  # fmt: skip
    row = lambda point: min(range(4), key=lambda rank: abs(rows[rank] - point[1]))  # noqa: E731
    found = [(row(start), row(end)) for start, end in drawn.arrows]
    assert sorted(found) == sorted((m.source, m.dest) for m in trace.messages)


@pytest.mark.parametrize(
    ("name", "ranks"),
    [
        ("ring_all_reduce", 1), ("tree_all_reduce", 5), ("all_to_all", 9),
        ("rabenseifner_all_reduce", 12), ("ring_all_reduce", 17),
    ],
)  # fmt: skip
def test_words_stay_in_their_cells_and_on_the_page(board, name, ranks):
    for text, _, area, box in board(run(name, ranks)).words:
        assert 15 <= area.x <= area.x + area.width <= 790, text
        if box is not None:
            assert box.x - 1 <= area.x <= area.x + area.width <= box.x + box.width + 1, text


def test_with_links_the_bars_are_those_of_the_model():
    trace = run("ring_all_reduce")
    timed = trace.timed(**LINKS)
    drawn = bars(trace, timed)
    assert [bar.start for bar in drawn if bar.state == "sends"] == list(timed.starts)


def test_the_timeline_says_its_kind_and_its_times_in_words():
    trace = run("naive_all_reduce")
    shown = trace.picture(**LINKS)
    assert shown.kind == trace.timed(**LINKS).kind
    assert "microseconds: rank 0 sends" in shown.alt
    # In a star the last of four ranks waits its turn: two messages before it sends, two before it
    # is sent something.
    steps = trace.picture(latency=1.0, bandwidth=1e30)
    assert "rank 3 waits 4, sends 1, receives 1" in steps.alt
    assert run("ring_all_reduce", 1).picture(**LINKS).width == 800


def test_two_runs_under_one_clock_have_one_axis():
    both = [run("naive_all_reduce"), run("ring_all_reduce")]
    shown = both[0].beside(both[1], **LINKS).picture()
    long, short = (seconds_text(one.timed(**LINKS).seconds) for one in both)
    assert f"naive_all_reduce, 4 ranks, {long} and ring_all_reduce, 4 ranks, {short}" in shown.alt
    # One figure of all lanes, whose end is that of the longer run.
    assert shown.kind == both[0].timed(**LINKS).kind
    assert "microseconds: rank 0 sends" in shown.alt
