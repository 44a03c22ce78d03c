"""Pictures of updates: they show the record, say so in words, and bear odd runs."""

import itertools
from types import SimpleNamespace

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from labkit.kinds import LabError
from labkit.updates import Quadratic, compare, simulate, stability
from labkit.updates.pictures import diagrams
from labkit.views import updates_figure, updates_timeline

ODD = {
    "one worker": {"workers": 1, "updates": 1},
    "forty workers": {"workers": 40, "jitter": 0.5, "updates": 300},
    "one very slow": {"workers": 3, "slow": {0: 200.0}, "updates": 100},
    "no time to compute": {"workers": 2, "compute": 0.0, "network": 0.1, "updates": 10},
    "backups": {"workers": 4, "mode": "sync", "backups": 2, "jitter": 0.5, "updates": 10},
    "flies apart": {"workers": 8, "learning_rate": 50.0, "updates": 2000},
}


@pytest.fixture
def drawn(monkeypatch):
    """The figures that would become pictures: laid out, but without the pixels."""
    figures = []

    def picture(chart, alt, kind):
        chart.draw_without_rendering()
        figures.append(chart)
        return SimpleNamespace(alt=alt, kind=kind)

    for module in (updates_timeline, updates_figure):
        monkeypatch.setattr(module, "picture", picture)
    return figures


def words(axes):
    return [text for text in axes.texts if text.get_text()]


@pytest.mark.parametrize("name", ODD)
def test_every_run_can_be_drawn(drawn, name):
    run = simulate(Quadratic(), **ODD[name])
    for shown in (run.timeline(), run.histogram(), compare(run, run).picture()):
        assert shown.kind == run.kind
        assert shown.alt.endswith(".")


def test_a_picture_has_pixels_and_words():
    shown = simulate(workers=2, updates=6).timeline()
    assert len(shown.png) > 5000
    assert "6 versions" in repr(shown)


def test_a_timeline_names_versions_read_and_made(drawn):
    run = simulate(workers=2, mode="async", slow={1: 3.0}, updates=12)
    shown = run.timeline()
    assert "worker 0 begins 9 gradients, computes 100.0 %, staleness up to 1" in shown.alt
    said = {text.get_text() for text in words(drawn[0].axes[0])}
    assert {"0 → 1", "1 → 2", "0 → 4", "3 → 5"} <= said


def test_a_narrow_bar_has_its_versions_without_spaces(drawn):
    simulate(workers=4, mode="sync", compute=0.030, slow={3: 3.0}, updates=6).timeline()
    said = {text.get_text() for text in words(drawn[0].axes[0])}
    assert {"0→1", "0 → 1", "5→6", "5 → 6"} <= said


def test_what_is_too_short_to_be_seen_is_not_in_the_key(drawn):
    run = simulate(workers=2, updates=12, network=1e-5)
    run.timeline()
    keys = [text.get_text() for text in drawn[0].axes[0].get_legend().get_texts()]
    assert keys == ["computes: version read → version made"]


@pytest.mark.parametrize("until", [0, -1, float("nan"), "x"])
def test_a_timeline_needs_some_time(until):
    with pytest.raises(LabError, match="until="):
        simulate(updates=3).timeline(until=until)


def test_a_timeline_can_end_earlier(drawn):
    run = simulate(workers=2, mode="sync", updates=12)
    assert "the first 3.00 s, in which 3 versions" in run.timeline(until=3.0).alt


@pytest.mark.parametrize(("workers", "jitter"), [(2, 0.0), (5, 0.5), (12, 0.5)])
def test_no_words_of_a_timeline_lie_upon_others(drawn, workers, jitter):
    simulate(workers=workers, jitter=jitter, network=0.05, updates=200).timeline()
    chart = drawn[0]
    renderer = FigureCanvasAgg(chart).get_renderer()
    axes = chart.axes[0]
    frame = chart.bbox
    placed = [text.get_window_extent(renderer) for text in words(axes)]
    for one, two in itertools.combinations(placed, 2):
        assert not one.overlaps(two)
    for one in placed:
        assert frame.x0 <= one.x0
        assert one.x1 <= frame.x1


def test_a_histogram_has_every_gradient_in_it_and_its_mean(drawn):
    run = simulate(workers=4, slow={3: 4.0}, updates=101)
    assert "Staleness of 101 gradients" in run.histogram().alt
    axes = drawn[0].axes[0]
    assert sum(bar.get_height() for bar in axes.patches) == 101
    assert f"mean {run.mean_staleness:.2f}" in [text.get_text() for text in words(axes)]


def test_curves_hold_the_losses_over_updates_and_over_seconds(drawn):
    bowl = Quadratic()
    pair = [simulate(bowl, mode=mode, slow={3: 4.0}, seconds=40) for mode in ("sync", "async")]
    shown = compare(*pair, target=0.1).picture()
    assert "synchronous: loss 0.0608 after 10 updates in 40.0 s, after 32.0 s at 0.1" in shown.alt
    by_update, by_second = drawn[0].axes
    for run, left, right in zip(pair, by_update.lines, by_second.lines, strict=False):
        assert list(left.get_xdata()) == [one.version for one in run.losses]
        assert list(right.get_xdata()) == [one.seconds for one in run.losses]
        assert list(right.get_ydata()) == [one.loss for one in run.losses]


@pytest.mark.parametrize("length", [5, 30, 60])
def test_all_names_of_a_comparison_can_be_read(drawn, length):
    run = simulate(Quadratic(), updates=5)
    compare(run, run, run, run, names=["abcd"[i] * length for i in range(4)]).picture()
    chart = drawn[0]
    place = chart.legends[0].get_window_extent()
    assert chart.bbox.x0 <= place.x0
    assert place.x1 <= chart.bbox.x1


def test_the_limits_that_were_tried_lie_on_the_formula(drawn):
    shown = stability(range(5)).picture()
    assert "delay 3: 0.4450 and 0.4450" in shown.alt
    formula, tried = drawn[0].axes[0].lines[:2]
    assert list(tried.get_ydata()) == pytest.approx(list(formula.get_ydata()), abs=1e-5)
    assert formula.get_linestyle() != tried.get_linestyle()


def test_the_diagram_of_both_ways_shows_what_is_simulated():
    board = diagrams()["sync_and_async"].sketch()
    said = [text.get_text() for text, _ in board.words]
    assert {"4 updates", "20 updates"} <= set(said)
    assert said.count("waits") == 8
