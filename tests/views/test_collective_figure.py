"""Pictures of a run: true values and contributions, arrows, what is left out, lanes of time."""

import functools

import numpy as np
import pytest

from labkit import collectives
from labkit.collectives import programs
from labkit.kinds import LabError
from labkit.views import sketch
from labkit.views.collective_figure import figure
from labkit.views.timeline import bars, timeline

LINKS = {"latency": 5e-6, "bandwidth": 1e9}


@functools.cache
def run(name, ranks=4, **options):
    return collectives.run(getattr(programs, name), ranks=ranks, **options)


@pytest.fixture
def board(monkeypatch):
    """Draws a figure and gives back the sketch itself, whose words and arrows can be read."""
    boards = []
    monkeypatch.setattr(sketch.Sketch, "picture", lambda self, *_, **__: boards.append(self))

    def draw(trace, step=None):
        figure(trace, step)
        return boards[-1]

    return draw


def words(board):
    return [word.text for word in board.words]


def test_a_step_shows_the_true_values_before_and_after_it(board):
    trace = run("ring_all_reduce")
    drawn = words(board(trace, trace.steps))
    assert [drawn.count(total) for total in ("29", "32", "36", "40")] == [1, 7, 7, 7]
    assert {str(value) for value in range(1, 17)} <= set(words(board(trace, 0)))


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

    trace = collectives.run(greedy, ranks=3)
    assert "2×" in words(board(trace, 2))
    assert "2×" not in words(board(trace, 1))


@pytest.mark.parametrize("name", ["ring_all_reduce", "all_to_all", "reduce"])
def test_each_message_of_a_step_is_an_arrow_from_its_sender_to_its_receiver(board, name):
    trace = run(name)
    drawn = board(trace, 2)
    # The middle of the first four numbers of ranks: the rows.
    rows = [one.area.middle[1] for n in range(4) for one in drawn.words if one.text == str(n)
            and one.area.x < 60]  # fmt: skip
    row = lambda point: min(range(4), key=lambda rank: abs(rows[rank] - point[1]))  # noqa: E731
    found = [(row(start), row(end)) for start, end in drawn.arrows]
    assert sorted(found) == sorted((m.source, m.dest) for m in trace.messages if m.step == 2)


@pytest.mark.parametrize(
    ("name", "ranks", "step"),
    [
        ("ring_all_reduce", 1, 0), ("tree_all_reduce", 5, 2), ("all_to_all", 9, 2),
        ("rabenseifner_all_reduce", 12, None), ("ring_all_reduce", 17, None),
    ],
)  # fmt: skip
def test_words_stay_in_their_cells_and_on_the_page(board, name, ranks, step):
    for text, _, area, box in board(run(name, ranks), step).words:
        assert 15 <= area.x <= area.x + area.width <= 790, text
        if box is not None:
            assert box.x - 1 <= area.x <= area.x + area.width <= box.x + box.width + 1, text


def test_a_step_that_the_run_does_not_have_is_refused_with_the_range():
    with pytest.raises(LabError, match=r"0 to 6.*got 7"):
        figure(run("ring_all_reduce"), 7)


def test_in_steps_each_message_is_one_step_at_both_ends():
    trace = run("tree_all_reduce", 5)
    drawn, finished = bars(trace)
    assert len(drawn) == 2 * len(trace.messages)
    assert all(bar.end - bar.start == 1 for bar in drawn)
    assert max(finished) == trace.steps


def test_with_links_the_bars_are_those_of_the_model():
    trace = run("ring_all_reduce")
    timed = trace.timed(**LINKS)
    drawn, finished = bars(trace, timed)
    assert max(finished) == pytest.approx(timed.seconds)
    assert [bar.start for bar in drawn if bar.state == "sends"] == list(timed.starts)


def test_the_timeline_says_its_kind_and_its_times_in_words():
    trace = run("naive_all_reduce")
    shown = trace.timeline(**LINKS)
    assert shown.kind == trace.timed(**LINKS).kind
    assert "microseconds: rank 0 sends" in shown.alt
    steps = timeline(trace)
    assert "one step for each message" in str(steps.kind)
    # The last of four ranks waits its turn in a star: 2 steps before it sends, 2 before it is sent.
    assert "rank 3 waits 4, sends 1, receives 1" in steps.alt
    assert timeline(run("ring_all_reduce", 1)).width == 800
