"""The figure says in words what it shows; the page holds the same pieces."""

import json
import re
from itertools import product

import numpy as np
import pytest

from labkit import pipelines
from labkit.kinds import measured
from labkit.pipelines.page.pipeline import content, lanes
from labkit.views.embed import path_of
from tests.views.test_pages import needs_node, node


def made(name, **times):
    return pipelines.schedule(name, stages=4, micro_batches=8).timeline(**times)


@pytest.mark.parametrize("name", ["naive", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2"])
def test_a_figure_has_every_piece_and_says_the_numbers(name):
    timeline = made(name, hop=0.1)
    alt = timeline.picture().alt
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
    assert real.picture().kind == real.kind
    assert str(model.beside(real).picture().kind).startswith(
        "measured on four devices; the others are modelled"
    )


def test_a_timeline_is_the_player_in_a_cell(monkeypatch):
    monkeypatch.delenv("LABKIT_PICTURES", raising=False)
    data, _ = made("interleaved", forward=np.int64(1), hop=np.float32(0))._repr_mimebundle_()
    assert re.search("total 28.5\nbubble 4.5: 18.8 % .* 15.8 %", data["text/plain"])
    assert "labkit-pipeline" in data["text/html"]


def test_two_schedules_are_a_picture_in_a_cell_and_play_under_one_clock():
    both = made("gpipe").beside(made("1f1b"))
    assert both._repr_mimebundle_()[0]["text/plain"] == both.picture().alt
    page = both.player().html()
    assert "labkit-pipelines" in page


def test_the_page_holds_each_piece_with_its_times():
    timeline = made("interleaved")
    page = content(timeline)
    for rank, row in enumerate(page["rows"]):
        assert [piece[:3] for piece in row] == timeline.schedule.rows[rank]
        assert [piece[3] for piece in row] == [4 * piece[2] + rank for piece in row]
        assert [piece[4] for piece in row] == pytest.approx(timeline.starts[rank])
    assert page["kind"].startswith("modelled")


PLAYED = f"""
import {{ readFileSync }} from "node:fs";
import {{ measured, played }} from "{path_of("schedules").as_uri()}";
const found = JSON.parse(readFileSync(0, "utf8")).map((choice) => {{
  const timeline = played(choice);
  return {{ ...timeline, ...measured(timeline) }};
}});
process.stdout.write(JSON.stringify(found));
"""
NAMES = ("naive", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2")
ON_A_V = ("zb-v", "v-half", "v-min", "dualpipe-v")


@needs_node
def test_the_page_makes_the_schedules_and_the_times_that_python_makes():
    sizes = product((*NAMES, *ON_A_V), (2, 3, 4, 8), (1, 4, 8, 15, 24))
    several = ((1, 2, None, 0), (1, 1, 1, 0), (18.522, 18.086, 9.337, 0.601))
    choices = [
        {"name": name, "stages": p, "microbatches": m, "chunks": 2, "times": times}
        for (name, p, m), times in product(sizes, several)
        if name != "interleaved" or m % max(1, m // p) == 0
    ]
    found = json.loads(node("--input-type=module", "-e", PLAYED, said=json.dumps(choices)))
    for choice, page in zip(choices, found, strict=True):
        f, b, w, hop = choice["times"]
        size = {"stages": choice["stages"], "micro_batches": choice["microbatches"]}
        timeline = pipelines.schedule(choice["name"], **size).timeline(f, b, weight=w, hop=hop)
        wanted = content(timeline)
        for row, mine in zip(wanted["rows"], page["rows"], strict=True):
            assert [tuple(one[:4]) for one in mine] == [one[:4] for one in row], choice
            assert [one[4:] for one in mine] == [pytest.approx(list(one[4:])) for one in row]
        for name in ("kind", "chunks", "parts", "weights"):
            assert page[name] == wanted[name], choice
        for name in ("total", "step", "ideal", "bubble"):
            assert page[name] == pytest.approx(getattr(timeline, name)), choice
        assert page["peaks"] == timeline.peak_activations


@needs_node
def test_the_formula_of_a_bubble_is_what_the_clock_gives():
    choices = [
        {"name": name, "stages": p, "microbatches": m, "chunks": 2, "times": (1, 1, 1, 0)}
        for name, p, m in product(NAMES, (2, 4, 8), (16, 24, 32))
    ]
    for page in json.loads(node("--input-type=module", "-e", PLAYED, said=json.dumps(choices))):
        assert page["formula"]["value"] == pytest.approx(page["bubble"])
