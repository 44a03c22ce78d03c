"""Pictures of a run: true values and contributions, arrows, sizes, words, lanes of time."""

import functools
import io

import numpy as np
import pytest
from PIL import Image

from labkit import collectives
from labkit.collectives import programs
from labkit.kinds import LabError
from labkit.views import sketch
from labkit.views.cells import Cells, rank_color, size_of_values
from labkit.views.collective_figure import figure, moves_of
from labkit.views.collective_timeline import bars, timeline

LINKS = {"latency": 5e-6, "bandwidth": 1e9}


@functools.cache
def run(name, ranks=4, **options):
    return collectives.run(getattr(programs, name), ranks=ranks, **options)


@pytest.fixture
def board(monkeypatch):
    """Draws a figure and gives back the sketch itself, whose words and arrows can be read."""
    boards = []
    monkeypatch.setattr(sketch.Sketch, "picture", lambda self, alt: boards.append(self))

    def draw(trace, step):
        figure(trace, step)
        return boards[-1]

    return draw


def words(board):
    return [text.get_text() for text, _ in board.words]


def test_a_step_shows_the_true_values_and_the_numbers_of_those_who_contributed(board):
    trace = run("ring_all_reduce")
    begun, done = words(board(trace, 0)), words(board(trace, trace.steps))
    assert [done.count(total) for total in ("28", "32", "36", "40")] == [4] * 4
    # In 4 cells of its own, the row, the column and the value 3; then in all 16 cells.
    assert begun.count("3") == 4 + 1 + 1 + 1
    assert done.count("3") == 16 + 1 + 1


def test_before_and_after_stand_beside_each_other(board):
    drawn = words(board(run("ring_all_reduce"), None))
    assert {str(value) for value in range(1, 17)} <= set(drawn)
    assert drawn.count("40") == 4


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


def test_messages_are_arrows_from_row_to_row_with_the_elements_that_they_carry(board):
    trace = run("ring_all_reduce")
    drawn = board(trace, 2)
    expected = [m for m in trace.messages if m.step == 2]
    labels = [word for word in words(drawn) if "→" in word]
    assert sorted(labels) == sorted(f"element {m.sent_from[0]} → rank {m.dest}" for m in expected)
    rows = Cells(0, 108, 1, 48 * 4, 4, 1)
    found = {
        (rank, other)
        for points in drawn.arrows
        for rank in range(4) for other in range(4)
        if rows.level(rank, 0) < points[0][1] < rows.level(rank, 1)
        and rows.level(other, 0) < points[-1][1] < rows.level(other, 1)
    }  # fmt: skip
    assert found == {(m.source, m.dest) for m in expected}


def test_no_two_arrows_lie_upon_each_other(board):
    arrows = board(run("all_to_all", 8), 3).arrows
    upright = [(points[1][0], *sorted((points[1][1], points[2][1]))) for points in arrows]
    for number, (x, low, high) in enumerate(upright):
        for other, start, end in upright[number + 1 :]:
            assert x != other or high < start or end < low


def test_sent_and_changed_cells_are_told_apart():
    trace = run("ring_all_reduce")
    moves = moves_of(trace, trace.contributions(), 1)
    assert moves.sent == {(rank, rank) for rank in range(4)}
    assert moves.received == {(rank, (rank - 1) % 4) for rank in range(4)}


@pytest.mark.parametrize(("ranks", "step"), [(1, 0), (3, None), (8, 1), (33, 1)])
def test_every_rank_count_has_a_picture(ranks, step):
    shown = figure(run("ring_all_reduce", ranks), step)
    assert shown.width == 800
    assert f"{ranks} rank" in shown.alt
    assert len(shown.png) < 250_000


@pytest.mark.parametrize(
    ("name", "ranks"), [("tree_all_reduce", 5), ("rabenseifner_all_reduce", 12), ("all_to_all", 9)]
)
def test_words_stay_in_their_cells_and_on_the_page(board, name, ranks):
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    drawn = board(run(name, ranks), 2)
    renderer = FigureCanvasAgg(drawn.figure).get_renderer()
    for text, box in drawn.words:
        place = text.get_window_extent(renderer)
        assert place.x0 >= 15, text.get_text()
        assert place.x1 <= 790, text.get_text()
        if box is not None:
            assert box.x - 1 <= place.x0, text.get_text()
            assert place.x1 <= box.x + box.width + 1, text.get_text()


def test_empty_buffers_are_drawn():
    empty = collectives.run(programs.barrier, [np.zeros(0)] * 3)
    assert "the buffers are empty" in figure(empty, 1).alt
    assert "the buffers are empty" in figure(empty).alt


def test_the_words_of_a_small_run_say_all_values():
    alt = figure(run("ring_all_reduce"), 1).alt
    assert "rank 0 sends 1 element to rank 1" in alt
    assert "rank 1 holds 6, 6, 7, 8" in alt


@pytest.mark.parametrize("step", [7, -1, 1.5, "last"])
def test_a_step_that_the_run_does_not_have_is_refused_with_the_range(step):
    with pytest.raises(LabError, match=f"0 to 6.*got {step!r}"):
        figure(run("ring_all_reduce"), step)


def test_neighbouring_ranks_have_colours_of_their_own():
    assert len({rank_color(rank) for rank in range(8)}) == 8
    assert rank_color(8) == rank_color(0)


def test_values_shrink_to_fit_and_are_left_out_when_too_small():
    held = run("ring_all_reduce").contributions().at(6)
    sizes = [size_of_values((0, 0, wide, 200), held) for wide in (400, 110, 60)]
    assert sizes[0] > sizes[1] > sizes[2] == 0


def test_in_steps_each_message_is_one_step_at_both_ends():
    trace = run("tree_all_reduce", 5)
    drawn, finished = bars(trace)
    assert len(drawn) == 2 * len(trace.messages)
    assert all(bar.end - bar.start == 1 for bar in drawn)
    assert max(finished) == trace.steps


def test_with_links_the_bars_are_those_of_the_model():
    trace = run("ring_all_reduce")
    timed = trace.timed(reduction=1e-9, **LINKS)
    drawn, finished = bars(trace, timed)
    assert sum(bar.what == "works" for bar in drawn) == len(timed.work)
    assert max(finished) == pytest.approx(timed.seconds)
    assert [bar.start for bar in drawn if bar.what == "sends"] == list(timed.starts)


def test_the_timeline_says_its_kind_and_its_times_in_words():
    trace = run("naive_all_reduce")
    shown = trace.timeline(**LINKS)
    assert shown.kind == trace.timed(**LINKS).kind
    assert "µs" in shown.alt
    steps = timeline(trace)
    assert "one step for each message" in str(steps.kind)
    assert "6 steps" in steps.alt
    # The last of four ranks waits its turn in a star: 2 steps before it sends, 2 before it is sent.
    assert "rank 3 sends 1, receives 1, waits 4" in steps.alt


@pytest.mark.parametrize("ranks", [1, 9])
def test_a_timeline_has_a_lane_for_each_rank(ranks):
    shown = timeline(run("ring_all_reduce", ranks))
    assert shown.width == 800
    assert (np.asarray(Image.open(io.BytesIO(shown.png)).convert("RGB")) != 255).any()
