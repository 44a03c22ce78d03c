"""The figure says in words what it shows; the page holds the same pieces."""

import re

import pytest

from labkit import pipelines
from labkit.kinds import measured
from labkit.views.pipeline import content, lanes


def made(name, **times):
    return pipelines.schedule(name, stages=4, microbatches=8).timeline(**times)


@pytest.mark.parametrize("name", ["naive", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2"])
def test_a_figure_has_every_piece_and_says_the_numbers(name):
    timeline = made(name, hop=0.1)
    alt = timeline.figure().alt
    assert f"total {timeline.total:.4g}; bubble {timeline.bubble:.4g}" in alt
    drawn = [bar for bar in lanes([timeline]).bars if bar.state != "waits"]
    assert len(drawn) == sum(map(len, timeline.schedule.rows))
    for rank in range(4):
        mine = sorted((bar.start, bar.end) for bar in drawn if bar.lane == rank)
        assert mine == list(zip(timeline.starts[rank], timeline.ends[rank], strict=True))


def test_pieces_differ_in_more_than_their_colour():
    """In grey print: by their pattern, and by their letter where it fits."""
    board = lanes([made("zb-h1", forward=1, backward=1, weight=1)])
    series = {state: how.series for state, how in board.states.items() if state in "FBW"}
    assert len(set(series.values())) == 3
    assert {"F0", "B0"} <= {word.text for word in board.board.words}


def test_a_modelled_and_a_measured_timeline_are_told_apart():
    model = made("1f1b")
    spans = [list(zip(a, b, strict=True)) for a, b in zip(model.starts, model.ends, strict=True)]
    real = pipelines.measured_timeline(model.schedule, spans, "four devices")
    assert real.kind == measured("four devices")
    names = lanes([model, real]).names
    assert {"1f1b, modelled", "1f1b, measured"} <= set(names)
    assert real.figure().kind == real.kind
    assert str(model.figure(real).kind).startswith(
        "measured on four devices; the others are modelled"
    )


def test_a_timeline_is_the_player_in_a_cell(monkeypatch):
    monkeypatch.delenv("LABKIT_PICTURES", raising=False)
    data, _ = made("interleaved")._repr_mimebundle_()
    assert re.search("total 28.5\nbubble 4.5: 18.8 % .* 15.8 %", data["text/plain"])
    assert "labkit-pipeline" in data["text/html"]


def test_the_page_holds_each_piece_with_its_times():
    timeline = made("interleaved")
    page = content(timeline)
    for rank, row in enumerate(page["rows"]):
        assert [piece[:3] for piece in row] == timeline.schedule.rows[rank]
        assert [piece[3] for piece in row] == pytest.approx(timeline.starts[rank])
    assert page["kind"].startswith("modelled")
