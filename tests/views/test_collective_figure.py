"""Pictures of a run: true values and contributions, arrows, sizes, words, lanes of time."""

import functools
import io

import numpy as np
import pytest
from PIL import Image

from labkit import collectives
from labkit.collectives import programs
from labkit.kinds import LabError
from labkit.views import collective_figure, collective_timeline
from labkit.views.cells import Cells, fitting, rank_color
from labkit.views.collective_figure import column_names, figure, moves_of
from labkit.views.collective_timeline import bars, timeline
from labkit.views.figure import style

LINKS = {"latency": 5e-6, "bandwidth": 1e9}


@functools.cache
def run(name, ranks=4, **options):
    return collectives.run(getattr(programs, name), ranks=ranks, **options)


def board(trace, step):
    """The sketch itself, whose words can be read."""
    with style():
        if step is None:
            return collective_figure._before_and_after(trace, trace.story())
        return collective_figure._one(trace, trace.story(), step)


def words(trace, step):
    return [text.get_text() for text, _ in board(trace, step).words]


def pixels(picture):
    return np.asarray(Image.open(io.BytesIO(picture.png)).convert("RGB"))


def test_a_step_shows_the_true_values_of_every_rank():
    trace = run("ring_all_reduce")
    drawn = words(trace, trace.steps)
    for total in ("28", "32", "36", "40"):
        assert drawn.count(total) == 4


def test_before_and_after_stand_beside_each_other():
    drawn = words(run("ring_all_reduce"), None)
    assert {str(value) for value in range(1, 17)} <= set(drawn)
    assert drawn.count("40") == 4


def test_contributions_carry_the_numbers_of_their_ranks():
    trace = run("ring_all_reduce")
    begun, done = words(trace, 0), words(trace, trace.steps)
    # 4 cells of its own, 4 names of rows, 4 names of columns; then all 16 cells.
    assert begun.count("3") == 4 + 1 + 1 + 1  # and the value 3
    assert done.count("3") == 16 + 1 + 1


def test_what_is_counted_twice_is_marked():
    def greedy(comm, buffer):
        rank, ranks = comm.Get_rank(), comm.Get_size()
        other = np.empty_like(buffer)
        for _ in range(ranks):
            comm.Sendrecv(buffer, (rank + 1) % ranks, recvbuf=other, source=(rank - 1) % ranks)
            buffer += other

    trace = collectives.run(greedy, ranks=3)
    assert "2×" in words(trace, 2)
    assert "2×" not in words(trace, 1)


def test_messages_are_arrows_with_the_elements_that_they_carry():
    trace = run("ring_all_reduce")
    drawn = board(trace, 2)
    assert len(drawn.arrows) == 4
    said = [text.get_text() for text, _ in drawn.words if "→" in text.get_text()]
    expected = [m for m in trace.messages if m.step == 2]
    assert sorted(said) == sorted(f"element {m.sent_from[0]} → rank {m.dest}" for m in expected)


def test_an_arrow_runs_from_the_senders_row_to_the_receivers():
    trace = run("broadcast", 6)
    drawn, step = board(trace, 3), 3
    rows = Cells(0, 108, 1, 48 * 6, 6, 1)
    found = {
        (rank, other)
        for points in drawn.arrows
        for rank in range(6) for other in range(6)
        if rows.level(rank, 0) < points[0][1] < rows.level(rank, 1)
        and rows.level(other, 0) < points[-1][1] < rows.level(other, 1)
    }  # fmt: skip
    assert found == {(m.source, m.dest) for m in trace.messages if m.step == step}


def test_no_two_arrows_lie_upon_each_other():
    drawn = board(run("all_to_all", 8), 3)
    upright = [(points[1][0], *sorted((points[1][1], points[2][1]))) for points in drawn.arrows]
    for number, (x, low, high) in enumerate(upright):
        for other, start, end in upright[number + 1 :]:
            assert x != other or high < start or end < low


def test_sent_and_changed_cells_are_told_apart():
    trace = run("ring_all_reduce")
    moves = moves_of(trace, trace.story(), 1)
    assert moves.sent == {(rank, rank) for rank in range(4)}
    assert moves.received == {(rank, (rank - 1) % 4) for rank in range(4)}


@pytest.mark.parametrize(
    ("ranks", "step"), [(1, 0), (2, 1), (3, None), (8, 1), (16, None), (33, 1), (64, None)]
)
def test_every_rank_count_has_a_picture(ranks, step):
    trace = run("ring_all_reduce", ranks)
    shown = figure(trace, step)
    assert shown.width == 800
    assert shown.alt.endswith(".")
    assert len(shown.png) < 250_000


@pytest.mark.parametrize(
    ("name", "ranks"), [("tree_all_reduce", 5), ("rabenseifner_all_reduce", 12), ("all_to_all", 9)]
)
def test_words_stay_in_their_cells_and_on_the_page(name, ranks):
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    trace = run(name, ranks)
    drawn = board(trace, 2)
    renderer = FigureCanvasAgg(drawn.figure).get_renderer()
    for text, box in drawn.words:
        place = text.get_window_extent(renderer)
        assert place.x0 >= 15, text.get_text()
        assert place.x1 <= 790, text.get_text()
        if box is not None:
            assert box.x - 1 <= place.x0, text.get_text()
            assert place.x1 <= box.x + box.width + 1, text.get_text()


def test_empty_buffers_and_one_rank_alone_are_drawn():
    empty = collectives.run(programs.barrier, [np.zeros(0)] * 3)
    assert "nobody holds anything" in figure(empty, 1).alt
    assert "1 rank" in figure(run("ring_all_reduce", 1)).alt


def test_a_buffer_of_many_pieces_shows_the_first_and_says_so():
    def piecewise(comm, buffer):
        for place in range(buffer.size):
            if comm.Get_rank() == 0:
                comm.Send(buffer[place : place + 1], dest=1)
            else:
                comm.Recv(buffer[place : place + 1], source=0)

    trace = collectives.run(piecewise, [np.zeros(200), np.ones(200)])
    said = " ".join(words(trace, 1))
    assert "The first 128 of 200 columns" in said


def test_the_words_of_a_small_run_say_all_values():
    alt = figure(run("ring_all_reduce"), 1).alt
    assert "rank 0 sends 1 element to rank 1" in alt
    assert "rank 1 holds 6, 6, 7, 8" in alt


@pytest.mark.parametrize("step", [7, -1, 1.5, "last"])
def test_a_step_that_the_run_does_not_have_is_refused_with_the_range(step):
    with pytest.raises(LabError, match=f"0 to 6; there is no step {step!r}"):
        figure(run("ring_all_reduce"), step)


def test_neighbouring_ranks_have_colours_of_their_own():
    assert len({rank_color(rank) for rank in range(8)}) == 8
    assert rank_color(8) == rank_color(0)


def test_type_shrinks_to_fit_and_gives_up_when_too_small():
    assert fitting(["28"], 100) == 10
    assert 6.5 <= fitting(["1234567"], 45) < 10
    assert fitting(["0.1234 … 0.5678"], 30) == 0


def test_elements_of_a_column_are_named():
    assert column_names([(0, 1), (1, 5), (5, 5)]) == ["0", "1–4", "–"]


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
    sends = [bar for bar in drawn if bar.what == "sends"]
    assert [bar.start for bar in sends] == list(timed.starts)


def test_the_timeline_says_its_kind_and_its_times_in_words():
    trace = run("naive_all_reduce")
    shown = timeline(trace, **LINKS)
    assert shown.kind == trace.timed(**LINKS).kind
    assert "rank 0" in shown.alt
    assert "µs" in shown.alt
    steps = timeline(trace)
    assert "one step for each message" in str(steps.kind)
    assert "6 steps" in steps.alt


def test_waiting_is_what_no_bar_covers():
    assert collective_timeline._covered([(0, 2), (1, 3), (5, 6)]) == 4
    # The last of four ranks waits its turn in a star: 2 steps before it sends, 2 before it is sent.
    assert "rank 3 sends 1, receives 1, waits 4" in timeline(run("naive_all_reduce")).alt


@pytest.mark.parametrize("ranks", [1, 9, 64])
def test_a_timeline_has_a_lane_for_each_rank(ranks):
    shown = timeline(run("ring_all_reduce", ranks))
    assert shown.width == 800
    assert (pixels(shown) != 255).any()


def test_the_trace_draws_itself():
    trace = run("ring_all_reduce")
    assert trace.figure(step=3).alt == figure(trace, 3).alt
    assert trace.timeline(**LINKS).alt == timeline(trace, **LINKS).alt
